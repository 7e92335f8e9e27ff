// The part of octet/octet.h that computes: products, experts, layers and model folders. Include
// that header.
#ifndef OCTET_C_LAYERS_H_
#define OCTET_C_LAYERS_H_

#include "octet/c/core.h"

// The names and types are those of C.
// NOLINTBEGIN(readability-identifier-naming,modernize-*)
#ifdef __cplusplus
extern "C" {
#endif

// ---- products of the experts of one GPU: octet/grouped_gemm.h

typedef struct octet_gemm octet_gemm;

typedef struct octet_gemm_config {
  uint64_t size;
  int32_t experts;   // L; required
  int32_t n;         // columns of the product; required
  int32_t k;         // elements of a row of a; required
  int32_t dtype;     // enum octet_dtype
  int64_t max_rows;  // rows that a and out have memory for; required
  int32_t output;    // enum octet_gemm_output
  int32_t format;    // enum octet_gemm_format
  int32_t scale_format;
  int32_t activation;  // enum octet_gemm_activation
  int64_t expected_rows;
  int32_t blocks;
  int32_t no_measured_tuning;
  int32_t fp8_rows;  // not 0: with the format MXFP4, the elements of a are FP8
} octet_gemm_config;

// All of it GPU memory.
typedef struct octet_gemm_args {
  uint64_t size;
  const void* a;                  // [max_rows][k]; required
  const void* b;                  // [L][n][k]; required
  const void* a_scales;           // of FP8 elements
  const void* b_scales;           // of FP8 and MXFP4 elements
  const int32_t* expert_offsets;  // [L + 1] first row of each expert; required
  const int32_t* expert_counts;   // [L]; NULL: up to the next offset
  const float* bias;              // [L][n]; or NULL
  const float* row_scale;         // [max_rows]; or NULL
  void* out;                      // [max_rows][n], or [n / 2] with OCTET_SWIGLU; required
  int64_t rows;                   // 0: memory of max_rows
} octet_gemm_args;

// In a body, before anything is enqueued: the object belongs to that rank's GPU.
OCTET_API int32_t octet_gemm_create(octet_rank* rank, const octet_gemm_config* config,
                                    octet_gemm** gemm);
OCTET_API void octet_gemm_destroy(octet_gemm* gemm);
// Enqueues one kernel on the rank's stream.
OCTET_API int32_t octet_gemm_run(octet_gemm* gemm, octet_rank* rank, const octet_gemm_args* args);

// ---- experts together with dispatch and combine: octet/routed_experts.h

typedef struct octet_experts octet_experts;

typedef struct octet_experts_config {
  uint64_t size;
  const octet_ep_config* ep;  // required
  int32_t intermediate;       // I, a multiple of 8; required
  int32_t no_activation;      // not 0: none instead of SwiGLU
  int32_t second_format;      // enum octet_gemm_format, of the second product
  int32_t weights_in;         // enum octet_weights_in
  int32_t dispatch_gemm;      // enum octet_fusion
  int32_t gemm_combine;       // likewise
  int32_t first_format;       // enum octet_gemm_format: of b of the first product; 0: as its rows
  int32_t second_fp8_rows;    // not 0: with MXFP4, the second product's rows are quantized to FP8
} octet_experts_config;

// N1 is 2 * I, or I without activation. All of it GPU memory.
typedef struct octet_dispatch_gemm_args {
  uint64_t size;
  const octet_dispatch_args* dispatch;  // required
  const void* b;         // [L][N1][H]; gate and up alternate, eight rows each; required
  const void* b_scales;  // of FP8 and MXFP4 elements
  const float* bias;     // [L][N1]; or NULL
  void* out;             // [max_rows][I]; required
} octet_dispatch_gemm_args;

typedef struct octet_gemm_combine_args {
  uint64_t size;
  const void* a;         // [max_rows][I], usually octet_dispatch_gemm_args.out; required
  const void* b;         // [L][H][I]; required
  const void* b_scales;  // of FP8 and MXFP4 elements
  const float* bias;     // [L][H]; or NULL
  const void* y_bias;    // [H]; or NULL
  void* y;               // [T][H]; required
} octet_gemm_combine_args;

OCTET_API int32_t octet_experts_create(octet_domain* domain, const octet_experts_config* config,
                                       const octet_ep_options* options, octet_experts** experts);
OCTET_API void octet_experts_destroy(octet_experts* experts);
OCTET_API int32_t octet_experts_get_info(octet_experts* experts, octet_ep_info* info);
OCTET_API int32_t octet_experts_dispatch_gemm(octet_experts* experts, octet_rank* rank,
                                              const octet_dispatch_gemm_args* args,
                                              octet_received* received);
// `received` is what the dispatch has filled in; its rows are overwritten.
OCTET_API int32_t octet_experts_gemm_combine(octet_experts* experts, octet_rank* rank,
                                             const octet_received* received,
                                             const octet_gemm_combine_args* args);

// ---- whole layers: octet/moe_layer.h, octet/moe_weights.h

typedef struct octet_layer octet_layer;
typedef struct octet_model octet_model;

typedef struct octet_layer_config {
  uint64_t size;
  int32_t num_experts;          // E; required
  int32_t topk;                 // K; required
  int32_t hidden;               // H; required
  int32_t intermediate;         // of an expert; required
  int32_t shared_intermediate;  // of all shared experts; 0: none
  int32_t shared_gate;
  int32_t max_tokens_per_rank;  // M; required
  int32_t dtype;
  int32_t weights;  // enum octet_gemm_format
  int32_t path;     // enum octet_layer_path
  int32_t strategy;
  int32_t fusion;
  int32_t max_blocks;
  int32_t link_blocks;
  int32_t shared_experts;  // enum octet_shared_experts
  // the router: octet/router.h
  int32_t router_scores;
  int32_t router_groups;      // 0: 1
  int32_t router_top_groups;  // 0: 1
  int32_t router_group_score;
  int32_t router_normalize;
  float router_normalize_epsilon;
  float router_scaling;  // 0: 1
  int32_t capacity_rows;
  int32_t logit_bias;     // the router adds a bias to its logits
  int32_t expert_biases;  // the experts add biases to their products
  // h = gate * sigmoid(alpha * gate) * (up + up_offset), with gate at most the limit and up within
  // it on both sides.
  float swiglu_alpha;  // 0: 1
  float swiglu_limit;  // 0: none
  float swiglu_up_offset;
  // As in octet_ep_config:
  const int32_t* placement;
  int32_t placement_slots;
  int32_t count_loads;
  int32_t load_window;
  int32_t weighs_input;  // a token's weight multiplies x, not what its expert makes of it; topk 1
  int32_t fp8_rows;      // not 0: with MXFP4 weights, rows are quantized to FP8
  float router_jitter;   // of OCTET_SPARSEMIXER, otherwise 0
} octet_layer_config;

// A matrix in host memory, which stays the caller's.
typedef struct octet_tensor {
  uint64_t size;
  int32_t type;  // enum octet_tensor_type
  int32_t rows;
  int32_t columns;
  int32_t scale_type;  // enum octet_tensor_type
  const void* data;    // row-major unless column_pitch is given; NULL: there is none
  // FP8: [ceil(rows / 128)][ceil(columns / 128)]; MXFP4, INT4: [rows][columns / 32]
  const void* scales;
  uint64_t column_pitch;  // not 0: column-major, elements from a column to the next
  int32_t row_step;       // row r is row r * row_step of what data has; 0: 1
  // The rows and columns that share a scale, where that is not as above; 0: it is.
  int32_t scale_rows;
  int32_t scale_columns;
} octet_tensor;

typedef struct octet_mlp_weights {
  uint64_t size;
  const octet_tensor* gate;  // [I][H]
  const octet_tensor* up;    // [I][H]
  const octet_tensor* down;  // [H][I]
  // With octet_layer_config.expert_biases: [1][I], [1][I] and [1][H]; else NULL.
  const octet_tensor* gate_bias;
  const octet_tensor* up_bias;
  const octet_tensor* down_bias;
} octet_mlp_weights;

typedef struct octet_layer_weights {
  uint64_t size;
  const octet_tensor* router;        // [E][H]; required
  const octet_tensor* router_bias;   // [1][E]; or NULL, as with OCTET_SPARSEMIXER
  const octet_mlp_weights* experts;  // [num_experts]; each process reads those of its ranks
  int64_t num_experts;               // E; required
  const octet_mlp_weights* shared;   // or NULL
  const octet_tensor* shared_gate;   // [1][H]; or NULL
  const octet_tensor* logit_bias;    // [1][E] with octet_layer_config.logit_bias; else NULL
} octet_layer_weights;

typedef struct octet_layer_options {
  uint64_t size;
  const char* name;
  const octet_layer* share;  // a layer whose memory for all but weights this one uses, too
  int32_t rail_chunk_tokens;
} octet_layer_options;

// The router's results of a rank's last forward, in GPU memory.
typedef struct octet_routed_tokens {
  uint64_t size;
  const float* logits;  // [T][stride], the first E of each row
  int64_t stride;
  const int32_t* topk_idx;    // [T][K]
  const float* topk_weights;  // [T][K]
} octet_routed_tokens;

OCTET_API int32_t octet_layer_create(octet_domain* domain, const octet_layer_config* config,
                                     const octet_layer_options* options, octet_layer** layer);
OCTET_API void octet_layer_destroy(octet_layer* layer);
// The configuration with every choice made.
OCTET_API int32_t octet_layer_get_config(const octet_layer* layer, octet_layer_config* config);
// Converts the weights and copies them to the GPUs. Not during a run.
OCTET_API int32_t octet_layer_load(octet_layer* layer, const octet_layer_weights* weights);
OCTET_API int32_t octet_layer_load_model(octet_layer* layer, const octet_model* model,
                                         int32_t index);
// y = layer(x): [num_tokens][H] of the dtype each, in GPU memory, that do not overlap.
OCTET_API int32_t octet_layer_forward(octet_layer* layer, octet_rank* rank, const void* x,
                                      int64_t num_tokens, void* y);
// The same with the number of tokens in GPU memory; OCTET_PATH_DECODE only.
OCTET_API int32_t octet_layer_forward_counted(octet_layer* layer, octet_rank* rank, const void* x,
                                              const int32_t* num_tokens, void* y);
OCTET_API int32_t octet_layer_get_routed(const octet_layer* layer, const octet_rank* rank,
                                         octet_routed_tokens* routed);
// octet_layer_config.count_loads: as octet_ep_loads.
OCTET_API int32_t octet_layer_loads(const octet_layer* layer, int64_t* rows, int64_t* window);
// Begins to copy experts to where `placement`, [R][placement_slots], has them; `max_blocks`: 0: the
// copy engines do. Then octet_layer_apply makes later calls of the rank go by it. All ranks call
// both.
OCTET_API int32_t octet_layer_prepare(octet_layer* layer, octet_rank* rank,
                                      const int32_t* placement, int32_t placement_slots,
                                      int32_t max_blocks);
OCTET_API int32_t octet_layer_apply(octet_layer* layer, octet_rank* rank);
// Fills in the placement by which the rank's next call goes, [R][octet_layer_config's
// placement_slots].
OCTET_API int32_t octet_layer_get_placement(const octet_layer* layer, const octet_rank* rank,
                                            int32_t* placement);

// ---- model folders: octet/model_folder.h

enum octet_layer_tensor {
  OCTET_ROUTER = 0,
  OCTET_ROUTER_BIAS = 1,
  OCTET_EXPERT_GATE = 2,
  OCTET_EXPERT_UP = 3,
  OCTET_EXPERT_DOWN = 4,
  OCTET_SHARED_EXPERT_GATE = 5,
  OCTET_SHARED_EXPERT_UP = 6,
  OCTET_SHARED_EXPERT_DOWN = 7,
  OCTET_SHARED_GATE = 8,
  OCTET_LOGIT_BIAS = 9,
  OCTET_EXPERT_GATE_BIAS = 10,
  OCTET_EXPERT_UP_BIAS = 11,
  OCTET_EXPERT_DOWN_BIAS = 12
};

OCTET_API int32_t octet_model_open(const char* folder, octet_model** model);
OCTET_API void octet_model_destroy(octet_model* model);
// Returns config.json's model_type, or "" of NULL.
OCTET_API const char* octet_model_family(const octet_model* model);
OCTET_API int32_t octet_model_num_layers(const octet_model* model, int32_t* num_layers);
// Fills in the configuration of a layer; max_tokens_per_rank and what is not the model's is 0.
// Refused if the layer needs a member that `config` lacks by its size; octet_model_tensor likewise.
OCTET_API int32_t octet_model_layer_config(const octet_model* model, int32_t layer,
                                           octet_layer_config* config);
// A view of one tensor (enum octet_layer_tensor) of a layer, valid as long as the model; `expert`
// counts for those of experts. Without data if the layer has no such tensor.
OCTET_API int32_t octet_model_tensor(const octet_model* model, int32_t layer, int32_t which,
                                     int32_t expert, octet_tensor* tensor);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming,modernize-*)

#endif  // OCTET_C_LAYERS_H_
