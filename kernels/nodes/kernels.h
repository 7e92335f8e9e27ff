// The kernels of `hierarchical`: what a rank does with tokens before and after they cross between
// nodes. Memory is the rank's own GPU's.
#ifndef OCTET_KERNELS_NODES_KERNELS_H_
#define OCTET_KERNELS_NODES_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/ep/device/routing.h"
#include "kernels/ep/device/row_arrivals.h"
#include "kernels/ep/device/row_departures.h"
#include "kernels/ep/device/site.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/launch_shape.h"

namespace octet::hierarchical {

// The most nodes: a token's nodes are bits of a word.
inline constexpr int kMaxNodes = 32;

// A record is what accompanies a row: [N] ids on the receiving node, [N] weights, [S] scales, in
// 4-byte words. A token's choices of experts of that node come first, in the order of k; ids of -1
// with weights of 0 follow.
struct RecordShape {
  int topk;         // N = min(K, E/P)
  int scale_words;  // S

  __host__ __device__ int words() const { return 2 * topk + scale_words; }
  size_t bytes() const { return static_cast<size_t>(words()) * sizeof(uint32_t); }
};

// The waits and checks of calls over several nodes.
enum class Site : uint32_t {
  kChunk = kFirstOwnSite,  // a dispatch waits for rows of other nodes. Index: the chunk
  kRecord,                 // what has come is no record. Index: row · N + n, seen: the id
  kReturn,                 // a chunk waits for its rows of a combine. Index: the chunk
};

// What the kernels of a rank have in common.
struct Shape {
  int num_nodes;      // P
  int node;           // of this rank
  int max_tokens;     // M
  int topk;           // K
  ExpertMap experts;  // the "ranks" of this map are nodes
  RecordShape record;
};

// Receives the counts that the host waits for. In host memory.
struct HostCounts {
  uint64_t of_node[kMaxNodes];  // number of the call · 2^32 + tokens that go to the node
};

// Finds the slot of each token among those that go to each node, in token order, and reports wrong
// choices, which go nowhere.
struct PlanParams {
  Shape shape;
  device::FailurePort failure;
  const int32_t* topk_idx;  // [num_tokens][K]
  int num_tokens;
  int32_t* slots;   // [P][M]: -1: the token does not go to that node
  int32_t* counts;  // [P] tokens that go to each node
  // Receives the counts as those of `call`; nullptr: the host waits for none.
  HostCounts* host;
  uint32_t call;
  RowArrivals arrivals;      // of the last dispatch; none have come for this one
  RowDepartures departures;  // likewise
};

// Rows and records, a block of M for each node.
struct Packed {
  void* rows;
  uint32_t* records;
};

// Stores the rows and records of a rank's tokens where they leave from; those of its own node at
// the start of its batch.
struct PackParams {
  Shape shape;
  const void* x;                 // [num_tokens] rows
  const int32_t* topk_idx;       // [num_tokens][K]
  const uint32_t* topk_weights;  // [num_tokens][K] bits of floats; nullptr: all 1
  const uint32_t* x_scales;      // [num_tokens][S]
  int num_tokens;
  int row_vecs;  // 16-byte vectors of a row of x
  const int32_t* slots;
  const int32_t* counts;
  bool fill;     // mark the rest of each block as unused: ids of -1
  Packed sent;   // [P][M]
  Packed batch;  // [P * M]
};

// Kernels with a `failure` run behind an exchange, and read nothing if the Run has failed: the rows
// may still be coming.

// Splits the records of the batch into the arrays that the intranode dispatch takes. If the Run has
// failed, marks all rows as unused. Refuses ids that no node sends: where a Run fails, another node
// may send bytes of no meaning before this one is told.
struct SplitParams {
  device::FailurePort failure;
  RecordShape record;
  int num_experts;          // E/P
  const uint32_t* records;  // [num_rows]
  int num_rows;
  int32_t* topk_idx;
  uint32_t* topk_weights;  // bits of floats
  uint32_t* scales;
  RowArrivals arrivals;         // becomes known: `ends`
  int32_t ends[kMaxRowChunks];  // [arrivals.num_chunks]
  int32_t* begin;               // becomes known: `own_rows`; if there are chunks
  int32_t own_rows;
};

// Says that a chunk of rows has come, to the dispatch that already runs.
struct MarkParams {
  device::FailurePort failure;
  RowArrivals arrivals;
  int chunk;
};

// Waits, beside a combine, until a chunk of its rows is complete.
struct AwaitRowsParams {
  device::FailurePort failure;
  RowDepartures departures;
  int chunk;
  uint64_t vecs;  // 16-byte vectors of all rows of the chunk
};

// y[t] = Σ over nodes ascending of the node's row (+ bias), in float32, rounded once to the dtype.
struct AddNodesParams {
  Shape shape;
  device::FailurePort failure;
  int num_tokens;
  int row_vecs;  // 16-byte vectors of a row of y
  const int32_t* slots;
  const void* own;       // [M] rows of this rank's own node
  const void* returned;  // [P][M] rows of the others
  const void* bias;      // [H]; nullptr: none
  void* y;               // [num_tokens][H]
};

// `wave_size`: the lanes of a wave. Loads all kernels on the current device, for rows of fp16 or of
// bf16.
hipError_t LoadKernels(bool fp16);
hipError_t LaunchPlan(const PlanParams& params, int wave_size, hipStream_t stream);
hipError_t LaunchPack(const PackParams& params, const LaunchShape& shape, hipStream_t stream);
hipError_t LaunchSplit(const SplitParams& params, const LaunchShape& shape, hipStream_t stream);
hipError_t LaunchMark(const MarkParams& params, hipStream_t stream);
hipError_t LaunchAwaitRows(const AwaitRowsParams& params, int wave_size, hipStream_t stream);
hipError_t LaunchAddNodes(const AddNodesParams& params, bool fp16, const LaunchShape& shape,
                          hipStream_t stream);

}  // namespace octet::hierarchical

#endif  // OCTET_KERNELS_NODES_KERNELS_H_
