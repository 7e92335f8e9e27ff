// The part of octet/octet.h that moves tokens: domains, memory, graphs, dispatch and combine.
// Include that header, which says what holds for all functions.
#ifndef OCTET_C_CORE_H_
#define OCTET_C_CORE_H_

#include <stdint.h>

#if defined(__GNUC__)
#define OCTET_API __attribute__((visibility("default")))
#else
#define OCTET_API
#endif

// The names and types are those of C.
// NOLINTBEGIN(readability-identifier-naming,modernize-*)
#ifdef __cplusplus
extern "C" {
#endif

// ---- errors

enum octet_code {
  OCTET_OK = 0,
  OCTET_CANCELLED = 1,
  OCTET_UNKNOWN = 2,
  OCTET_INVALID_ARGUMENT = 3,
  OCTET_DEADLINE_EXCEEDED = 4,
  OCTET_NOT_FOUND = 5,
  OCTET_ALREADY_EXISTS = 6,
  OCTET_PERMISSION_DENIED = 7,
  OCTET_RESOURCE_EXHAUSTED = 8,
  OCTET_FAILED_PRECONDITION = 9,
  OCTET_ABORTED = 10,
  OCTET_OUT_OF_RANGE = 11,
  OCTET_UNIMPLEMENTED = 12,
  OCTET_INTERNAL = 13,
  OCTET_UNAVAILABLE = 14,
  OCTET_DATA_LOSS = 15
};

// A failure as values, as in octet/node_failure.h. Texts are valid as long as those of
// octet_last_error.
typedef struct octet_failure {
  uint64_t size;
  int32_t kind;  // enum octet_failure_kind
  int32_t rank;  // the rank that failed, waited or was given the data
  int32_t peer;  // the rank that it waited for; -1: none is known
  uint32_t index;
  uint64_t expected;
  uint64_t seen;
  int64_t waited_ns;
  const char* phase;
  const char* flag;
  const char* object;  // the name of the object whose call it was, or ""
} octet_failure;

enum octet_failure_kind {
  OCTET_FAILURE_ERROR = 0,
  OCTET_FAILURE_WAIT = 1,
  OCTET_FAILURE_INPUT = 2
};

// Returns the sentence of the calling thread's last error, "" before the first. Valid until the
// next function that fails on this thread.
OCTET_API const char* octet_last_error(void);
// Fills in what the last error of this thread was; OCTET_NOT_FOUND if it was no rank's.
OCTET_API int32_t octet_last_failure(octet_failure* failure);
// Makes `message` the last error of this thread and returns `code`: for functions that Octet calls,
// which return an error of their own.
OCTET_API int32_t octet_fail(int32_t code, const char* message);
// Returns "INVALID_ARGUMENT" and so on.
OCTET_API const char* octet_code_name(int32_t code);

// "0.1.0"; and what it has been built for: "emulation", "nvidia" or "amd".
OCTET_API const char* octet_version(void);
OCTET_API const char* octet_platform(void);

// ---- values that have names
//
// Their names are those of octet's flags and messages. `kind` is "dtype", "strategy",
// "combine_order", "combine_method", "dispatch_format", "output", "duplicates", "scale_format",
// "failure_policy", "gemm_activation", "gemm_output", "gemm_format", "fusion", "weights_in",
// "router_scores", "group_score", "layer_path", "shared_experts", "tensor_type" or
// "rail_transport". The message of an unknown name lists those that there are.
OCTET_API int32_t octet_value_of_name(const char* kind, const char* name, int32_t* value);
OCTET_API int32_t octet_name_of_value(const char* kind, int32_t value, const char** name);

enum octet_dtype { OCTET_BFLOAT16 = 0, OCTET_FLOAT16 = 1 };
enum octet_strategy {
  OCTET_STRATEGY_AUTO = 0,
  OCTET_DIRECT = 1,
  OCTET_HIGH_THROUGHPUT = 2,
  OCTET_LOW_LATENCY = 3
};
enum octet_combine_order {
  OCTET_ORDER_AUTO = 0,
  OCTET_ORDER_FLAT = 1,
  OCTET_ORDER_PER_RANK = 2,
  OCTET_ORDER_PER_NODE = 3
};
enum octet_combine_method { OCTET_METHOD_AUTO = 0, OCTET_PUSH = 1, OCTET_PULL = 2 };
enum octet_dispatch_format {
  OCTET_DISPATCH_SAME = 0,
  OCTET_DISPATCH_FP8 = 1,
  OCTET_DISPATCH_BYTES = 2,
  OCTET_DISPATCH_QUANTIZED_FP8 = 3
};
enum octet_output {
  OCTET_PACKED_EXPERTS = 0,
  OCTET_DEDUPLICATED = 1,
  OCTET_EXPERT_MAJOR = 2,
  OCTET_RANK_MAJOR = 3
};
enum octet_duplicates { OCTET_FILL = 0, OCTET_INDEX = 1 };
enum octet_scale_format {
  OCTET_SCALE_FLOAT32 = 0,
  OCTET_SCALE_POWER_OF_TWO = 1,
  OCTET_SCALE_UE8M0 = 2
};
enum octet_failure_policy { OCTET_POLICY_ABORT = 0, OCTET_POLICY_MASK = 1 };
enum octet_gemm_activation { OCTET_NO_ACTIVATION = 0, OCTET_SWIGLU = 1 };
enum octet_gemm_output { OCTET_OUTPUT_DTYPE = 0, OCTET_OUTPUT_FLOAT32 = 1 };
enum octet_gemm_format { OCTET_FORMAT_SAME = 0, OCTET_FORMAT_FP8 = 1, OCTET_FORMAT_MXFP4 = 2 };
enum octet_fusion {
  OCTET_FUSION_AUTO = 0,
  OCTET_FUSION_NONE = 1,
  OCTET_FUSION_TILES = 2,
  OCTET_FUSION_SERIAL = 3,
  OCTET_FUSION_EPILOGUE = 4
};
enum octet_weights_in { OCTET_WEIGHTS_IN_COMBINE = 0, OCTET_WEIGHTS_IN_FIRST_PRODUCT = 1 };
enum octet_router_scores { OCTET_SOFTMAX = 0, OCTET_SIGMOID = 1, OCTET_SPARSEMIXER = 2 };
enum octet_group_score { OCTET_GROUP_MAXIMUM = 0, OCTET_GROUP_SUM_OF_TWO_BEST = 1 };
enum octet_layer_path { OCTET_PATH_AUTO = 0, OCTET_PATH_LAUNCHES = 1, OCTET_PATH_DECODE = 2 };
enum octet_shared_experts {
  OCTET_SHARED_AUTO = 0,
  OCTET_SHARED_AFTER = 1,
  OCTET_SHARED_BESIDE = 2
};
enum octet_tensor_type {
  OCTET_TENSOR_FLOAT32 = 0,
  OCTET_TENSOR_BFLOAT16 = 1,
  OCTET_TENSOR_FLOAT16 = 2,
  OCTET_TENSOR_FLOAT8_E4M3 = 3,
  OCTET_TENSOR_FLOAT4_E2M1 = 4,
  OCTET_TENSOR_FLOAT8_E8M0 = 5,
  OCTET_TENSOR_INT4 = 6
};
enum octet_rail_transport {
  OCTET_TRANSPORT_AUTO = 0,
  OCTET_TRANSPORT_MPI = 1,
  OCTET_TRANSPORT_NCCL = 2
};

// ---- domains: the ranks of one node, or of several

typedef struct octet_domain octet_domain;
// One rank's view of a domain: valid in the function that Octet has given it to.
typedef struct octet_rank octet_rank;

// A function of the caller's that Octet calls. Returns 0, or an error code: that of an octet
// function that has just failed on this thread, or octet_fail's. Another language's exceptions must
// not leave it.
typedef int32_t (*octet_rank_function)(octet_rank* rank, void* user);
typedef int32_t (*octet_function)(void* user);
// Told of the first failure of a run, on the thread that notices it, perhaps long before
// octet_domain_run returns: NodeOptions::on_failure, octet/node.h. Must not call Octet.
typedef void (*octet_failure_function)(int32_t code, const char* message, void* user);

typedef struct octet_node_options {
  uint64_t size;
  int32_t num_ranks;                  // 0: all GPUs of this machine
  int32_t no_pinned_threads;          // not 0: rank threads may run on any CPU
  int64_t timeout_ns;                 // of a wait on a GPU; 0: OCTET_TIMEOUT_MS, else 10 s
  octet_failure_function on_failure;  // NULL: one line to stderr
  void* on_failure_user;
  int32_t quiet;  // not 0: nothing to stderr without on_failure
} octet_node_options;

typedef struct octet_world_options {
  uint64_t size;
  const octet_node_options* node;  // of this process; NULL: defaults
  int64_t arrival_timeout_ns;      // how long calls wait for all processes; 0: one minute
  int32_t transport;               // enum octet_rail_transport
  int32_t prepared_code;           // not 0: this process cannot take part, so that none waits
  const char* prepared_message;
} octet_world_options;

typedef struct octet_domain_info {
  uint64_t size;
  int32_t num_ranks;  // over all nodes
  int32_t num_nodes;
  int32_t node_index;   // of this process
  int32_t local_ranks;  // of this process: 0 .. local_ranks - 1
  int64_t timeout_ns;
  int32_t transport;  // between nodes, enum octet_rail_transport
} octet_domain_info;

typedef struct octet_rank_info {
  uint64_t size;
  int32_t rank;  // of this node
  int32_t local_ranks;
  int32_t device;  // HIP's or CUDA's number
  int32_t reserved;
  void* stream;  // hipStream_t or cudaStream_t: Octet enqueues everything here
} octet_rank_info;

// The GPUs of this machine, one thread each: octet/node.h. `options` may be NULL.
OCTET_API int32_t octet_node_create(const octet_node_options* options, octet_domain** node);
// Several nodes, a process each: octet/world.h, docs/several_nodes.md. Collective.
// OCTET_UNIMPLEMENTED in liboctet; liboctet_mpi, which has the same functions, is linked to MPI.
OCTET_API int32_t octet_world_create(const octet_world_options* options, octet_domain** world);
// Refused inside a run (OCTET_FAILED_PRECONDITION). Collective over several nodes.
OCTET_API int32_t octet_domain_destroy(octet_domain* domain);
OCTET_API int32_t octet_domain_get_info(const octet_domain* domain, octet_domain_info* info);
// Calls `body` on every rank's thread at once, and waits for all of them and for what they have
// enqueued. Returns the cause if several ranks fail; the next run is then correct. One run at a
// time.
OCTET_API int32_t octet_domain_run(octet_domain* domain, octet_rank_function body, void* user);

// The same as octet_node_create for a program with threads and streams of its own, which makes
// calls with octet_domain_call: Node::Adopt, octet/node.h. `devices` are the ranks' GPUs, as CUDA
// and HIP count.
OCTET_API int32_t octet_node_adopt(const int32_t* devices, int32_t num_devices,
                                   const octet_node_options* options, octet_domain** node);
// Calls `body` on this thread, for a rank whose stream is `stream` (hipStream_t or cudaStream_t of
// its GPU), and does not wait for what it enqueues. Each rank needs a thread of its own, since
// ranks wait for each other on the host: refused in a call of another rank. After an error of any
// rank, octet_domain_settle comes first.
OCTET_API int32_t octet_domain_call(octet_domain* domain, int32_t rank, void* stream,
                                    octet_rank_function body, void* user);
// Waits for everything that calls have enqueued, and returns the cause of a failure, after which
// the next call is correct. When no rank is in a call and all have made the same. What is destroyed
// between calls is freed then. octet_domain_run does it first.
OCTET_API int32_t octet_domain_settle(octet_domain* domain);

// In a body, on the thread that it is called on.
OCTET_API int32_t octet_rank_get_info(const octet_rank* rank, octet_rank_info* info);
// Waits on the host for all ranks; errors name `before`, a call's name, or NULL.
OCTET_API int32_t octet_rank_barrier(octet_rank* rank, const char* before);
// Waits until all work on the rank's stream is done.
OCTET_API int32_t octet_rank_synchronize(octet_rank* rank);
// Runs octet_rank_barrier and then `launch`, which enqueues work that waits for other ranks.
OCTET_API int32_t octet_rank_launch(octet_rank* rank, octet_function launch, void* user,
                                    const char* call);
// Copies between memory of this GPU and of the host, or within either, after what is on the rank's
// stream, and waits for it.
OCTET_API int32_t octet_rank_copy(octet_rank* rank, void* to, const void* from, uint64_t bytes);

// ---- memory

// Memory of the GPU of a rank of this node, aligned to 256 bytes, not initialised. In emulation it
// is memory of the host, too, and calls accept no other. Before or between runs, or in a body
// before anything is enqueued. Destroyed during a run, it is freed when that run has ended.
typedef struct octet_memory octet_memory;
OCTET_API int32_t octet_memory_create(octet_domain* domain, int32_t rank, uint64_t bytes,
                                      octet_memory** memory);
OCTET_API void octet_memory_destroy(octet_memory* memory);
OCTET_API void* octet_memory_data(const octet_memory* memory);
// Copies between GPU memory and the host outside of runs.
OCTET_API int32_t octet_copy(octet_domain* domain, int32_t rank, void* to, const void* from,
                             uint64_t bytes);

// Memory at the same offset on every GPU, for the receive buffers of several objects:
// octet/symmetric_heap.h. Zeroed. Not during a run. Must outlive the objects that are made in it.
typedef struct octet_heap octet_heap;
OCTET_API int32_t octet_heap_create(octet_domain* domain, uint64_t uncached_bytes,
                                    uint64_t cached_bytes, octet_heap** heap);
OCTET_API void octet_heap_destroy(octet_heap* heap);

// ---- graphs: octet/graph.h

typedef struct octet_graph octet_graph;
// Captures what `enqueue` enqueues on the rank's stream. All ranks call it together.
OCTET_API int32_t octet_graph_capture(octet_rank* rank, octet_function enqueue, void* user,
                                      octet_graph** graph);
// Enqueues all of it again: on the same rank, by all ranks together.
OCTET_API int32_t octet_graph_launch(const octet_graph* graph, octet_rank* rank);
OCTET_API void octet_graph_destroy(octet_graph* graph);

// ---- dispatch and combine: octet/expert_parallel.h

typedef struct octet_ep octet_ep;

typedef struct octet_ep_config {
  uint64_t size;
  int32_t num_experts;          // E, over all ranks; required
  int32_t topk;                 // K; required
  int32_t hidden;               // H, a multiple of 8; required
  int32_t max_tokens_per_rank;  // M; required
  int32_t dtype;                // enum octet_dtype; this and the next: octet/ep_config.h
  int32_t strategy;
  int32_t combine_order;
  int32_t combine_method;
  int32_t dispatch_format;
  int32_t output;
  int32_t scale_format;
  int32_t scale_group;  // 0: 128
  int32_t max_blocks;
  // of low_latency
  int32_t failure_policy;
  int64_t mask_timeout_ns;
  int32_t statistics;
  // of high_throughput
  int32_t duplicates;
  int32_t expert_alignment;  // 0: 1
  int32_t row_bytes;
  int32_t kept_layouts;  // 0: 1
  int32_t host_totals;
  // Which expert lives where (octet/placement.h): [R][placement_slots], the expert in each slot of
  // each rank, or -1; NULL: expert e on rank e / (E / R). Of a configuration that is returned, it
  // is valid as long as the object.
  const int32_t* placement;
  int32_t placement_slots;
  int32_t capacity_rows;  // of high_throughput
  int32_t count_loads;    // for octet_ep_loads
  int32_t load_window;
} octet_ep_config;

typedef struct octet_ep_options {
  uint64_t size;
  const char* name;  // put into failures and errors; NULL: none
  octet_heap* heap;  // NULL: one of its own
  int32_t no_measured_tuning;
  int32_t rail_chunk_tokens;  // over several nodes: RailOptions
} octet_ep_options;

typedef struct octet_ep_info {
  uint64_t size;
  int32_t local_experts;        // L
  int32_t max_rows;             // the most rows that a rank receives
  int32_t expert_out_rows;      // rows of octet_combine_args.expert_out
  int32_t scale_words;          // 4-byte words of a received row of scales; 0: none
  uint64_t dispatch_row_bytes;  // of a row of x
  uint64_t received_row_bytes;  // of a row of octet_received.x
} octet_ep_info;

// Identifies a dispatch to its combine. A plain value: copies are as good.
typedef struct octet_dispatch_handle {
  uint64_t words[8];
} octet_dispatch_handle;

// All of it GPU memory of the caller's, unchanged until the combine.
typedef struct octet_dispatch_args {
  uint64_t size;
  const void* x;                        // [T][H] of the dtype, or rows of dispatch_format; required
  const int32_t* topk_idx;              // [T][K] experts, -1 drops a choice; required
  const float* topk_weights;            // [T][K]; NULL: all are 1
  int64_t num_tokens;                   // T, 0 .. M
  const void* x_scales;                 // high_throughput: DispatchFormat::kFp8
  const int32_t* scatter_idx;           // high_throughput
  const octet_dispatch_handle* cached;  // high_throughput: an earlier dispatch
} octet_dispatch_args;

typedef struct octet_combine_args {
  uint64_t size;
  const void* expert_out;  // [expert_out_rows][H] of the dtype; required
  void* y;                 // [T][H] of the dtype; required
  const void* bias;        // [H] of the dtype; or NULL
  int32_t unweighted;      // high_throughput
} octet_combine_args;

// The rows that have arrived, in GPU memory of the octet_ep, valid in stream order until the rank's
// next dispatch (with low_latency, the one after that): octet/received.h.
typedef struct octet_received {
  uint64_t size;
  const void* x;                  // [max_rows] rows of row_bytes, expert by expert
  const void* scales;             // [max_rows][scale_words]; or NULL
  const int32_t* expert_counts;   // [L]
  const int32_t* expert_offsets;  // [L + 1]; NULL with OCTET_RANK_MAJOR
  const int32_t* sources;         // [max_rows][4]: rank, token, k, local expert; -1 is padding
  uint64_t row_bytes;
  int64_t max_rows;
  octet_dispatch_handle handle;
  // of high_throughput
  const int32_t* source_offsets;      // [R + 1]
  const float* row_weights;           // [max_rows]
  const int32_t* row_index;           // [max_rows] with OCTET_INDEX
  const int32_t* recv_topk_idx;       // [tokens][K] with OCTET_DEDUPLICATED
  const float* recv_topk_weights;     // likewise
  int64_t num_rows;                   // with host_totals, else -1
  int64_t num_tokens;                 // likewise
  const int32_t* host_expert_counts;  // [L] in host memory with host_totals, else NULL
  // of low_latency
  const int32_t* ranges;        // [L][R][2]: first row and number of rows
  const int32_t* split_counts;  // [R][L] with OCTET_RANK_MAJOR
  const uint32_t* left_out;     // [2]: sets of ranks that dispatch and combine have left out
} octet_received;

// Not during a run. Collective over several nodes. `options` may be NULL.
OCTET_API int32_t octet_ep_create(octet_domain* domain, const octet_ep_config* config,
                                  const octet_ep_options* options, octet_ep** ep);
OCTET_API void octet_ep_destroy(octet_ep* ep);
// Bytes of each kind that such an object needs of an octet_heap.
OCTET_API int32_t octet_ep_heap_bytes(const octet_ep_config* config, int32_t num_ranks,
                                      uint64_t* uncached_bytes, uint64_t* cached_bytes);
// The configuration with every choice made.
OCTET_API int32_t octet_ep_get_config(const octet_ep* ep, octet_ep_config* config);
OCTET_API int32_t octet_ep_get_info(const octet_ep* ep, octet_ep_info* info);

// In a body; all ranks make the same calls in the same order. They enqueue and return.
OCTET_API int32_t octet_ep_dispatch(octet_ep* ep, octet_rank* rank, const octet_dispatch_args* args,
                                    octet_received* received);
OCTET_API int32_t octet_ep_combine(octet_ep* ep, octet_rank* rank,
                                   const octet_dispatch_handle* handle,
                                   const octet_combine_args* args);
// The same in two launches each, with other work in between.
OCTET_API int32_t octet_ep_dispatch_send(octet_ep* ep, octet_rank* rank,
                                         const octet_dispatch_args* args,
                                         octet_dispatch_handle* handle);
OCTET_API int32_t octet_ep_dispatch_receive(octet_ep* ep, octet_rank* rank,
                                            const octet_dispatch_handle* handle,
                                            octet_received* received);
OCTET_API int32_t octet_ep_combine_send(octet_ep* ep, octet_rank* rank,
                                        const octet_dispatch_handle* handle,
                                        const octet_combine_args* args);
OCTET_API int32_t octet_ep_combine_receive(octet_ep* ep, octet_rank* rank,
                                           const octet_dispatch_handle* handle,
                                           const octet_combine_args* args);
// OCTET_POLICY_MASK: sets of ranks, a bit each, that a rank's calls leave out.
OCTET_API int32_t octet_ep_masked_ranks(octet_ep* ep, octet_rank* rank, uint32_t* ranks);
OCTET_API int32_t octet_ep_mask(octet_ep* ep, octet_rank* rank, uint32_t ranks);
OCTET_API int32_t octet_ep_unmask(octet_ep* ep, octet_rank* rank, uint32_t still_masked);
// octet_ep_config.statistics: [L] rows, and [R] nanoseconds that dispatches and combines have
// waited for each rank. Each may be NULL.
OCTET_API int32_t octet_ep_statistics(octet_ep* ep, octet_rank* rank, int64_t* expert_rows,
                                      int64_t* dispatch_waits_ns, int64_t* combine_waits_ns);
OCTET_API int32_t octet_ep_reset_statistics(octet_ep* ep, octet_rank* rank);
// octet_ep_config.count_loads: [E] rows of each expert, in all and over the window. Each may be
// NULL. Any thread, also during a run.
OCTET_API int32_t octet_ep_loads(const octet_ep* ep, int64_t* rows, int64_t* window);

// ---- placements: octet/placement.h. Any thread.

// Fills in `slots`, [num_ranks][slots_per_rank], with a placement that balances `loads`, rows of
// each expert: [num_experts].
OCTET_API int32_t octet_plan_placement(const double* loads, int32_t num_experts, int32_t num_ranks,
                                       int32_t slots_per_rank, int32_t* slots);
// Two placements, each [num_ranks][slots_per_rank].
typedef struct octet_move_args {
  uint64_t size;
  int32_t num_experts;
  int32_t num_ranks;
  int32_t slots_per_rank;
  const int32_t* current;
  const int32_t* wanted;
} octet_move_args;

// Fills in `steps`, [max_steps][num_ranks][slots_per_rank], with the placements through which
// experts get from `current` to `wanted` by octet_layer_prepare and octet_layer_apply, and
// `num_steps` with their number. If that is more than max_steps, only it is filled in, and the
// function returns OCTET_OK; `steps` may then be NULL.
OCTET_API int32_t octet_plan_moves(const octet_move_args* args, int32_t max_steps, int32_t* steps,
                                   int32_t* num_steps);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming,modernize-*)

#endif  // OCTET_C_CORE_H_
