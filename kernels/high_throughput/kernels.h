// The kernels of `high_throughput` and their parameters. Shared by the host class and the .hip
// files.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_KERNELS_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/call_params.h"
#include "kernels/device/site.h"
#include "kernels/high_throughput/layout.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet::high_throughput {

// Threads of a block at most; one such block on each compute unit. Measured on H200s: with 1024
// threads registers do not suffice for dispatch; the fewer threads of combine have more registers
// each, and so more of their rows on their way.
inline constexpr int kDispatchMaxThreads = 768;
inline constexpr int kCombineMaxThreads = 512;

// Tags in traces; high_throughput.cc has their names.
enum class Tag : uint32_t {
  kBegin,        // from the kernel's first instruction until the call has begun
  kCount,        // this block's share of the routing
  kExchange,     // until all ranks' counts are here and places known
  kSend,         // a token to all its ranks; detail: token
  kWait,         // for a packet; detail: source
  kFill,         // its rows; detail: their number
  kCombineSend,  // a token's rows on their way home; detail: origin
  kCombineWait,  // for all of a token's rows; detail: who was missing last
  kReduce,       // their sum; detail: token
};

// What every kernel of this strategy gets.
struct CommonParams : CallParams {
  char* row_bases[kMaxRanks];  // each rank's part of the heap's cached memory
  Layout layout;
  State* state;
  Kept kept;
  // Waves [0, send_waves) of each block begin by sending; all waves receive once they have nothing
  // to send, if this kernel is one that receives.
  int send_waves;
  bool receives;
};

// Totals for the host, in pinned memory; expert_counts has L elements.
struct HostTotals {
  uint64_t epoch;  // stored last
  int32_t rows;
  int32_t tokens;
  int32_t expert_counts[1];
};

// Dynamic shared memory of a block of the dispatch kernel.
struct DispatchShared {
  size_t bytes;
  int32_t mover_offset;  // device::MoverMemory behind the rest, in 4-byte words
  uint32_t piece_bytes;
};

struct DispatchParams : DispatchTensors {
  CommonParams common;
  bool fresh;  // no layout is kept: count and exchange first
  // The number of the layout among those made since the last fresh start, the same on all ranks.
  uint32_t layout_number;
  // Read by the senders.
  const uint32_t* x_scales;    // [T][scale_words]
  const int32_t* scatter_idx;  // [T][K] or nullptr
  uint64_t* share_counts;      // [C][blocks] what each block has counted, with its epoch
  int32_t* before;             // [C][blocks] their sums over the blocks before
  HostTotals* totals;          // or nullptr
  // Written by the receivers; some may be null.
  RowSource* sources;        // [max_rows], or of each token if those are all that there are
  float* row_weights;        // [max_rows]
  int32_t* row_index;        // [max_rows] the row in x
  int32_t* recv_topk_idx;    // [R·M][K]
  float* recv_topk_weights;  // [R·M][K]
  int32_t* expert_counts;    // [L]
  int32_t* expert_offsets;   // [L + 1]
  int32_t* source_offsets;   // [R + 1]
  DispatchShared shared;
};

// Which rows go home.
enum class CombineRows {
  kChoices,  // one for each choice: CombineOrder::kFlat
  kSums,     // one for each token and rank, summed on the way: CombineOrder::kPerRank
  kReduced,  // the same, where expert_out has those sums already
};

struct CombineParams : CombineTensors {
  CommonParams common;
};

// One kernel for each.
struct DispatchVariant {
  bool traced;  // records into common.trace
  bool bulk;    // rows are moved by device::BulkMover, else by device::VectorMover
};
DispatchShared SharedOfDispatch(const Layout& layout, bool bulk, int waves);
// On each device before the first launch there: loads the kernel, and allows it its shared memory.
hipError_t PrepareDispatch(const DispatchVariant& variant, const LaunchShape& shape);
// Cooperative: all blocks are resident.
hipError_t LaunchDispatch(const DispatchParams& params, const DispatchVariant& variant,
                          const LaunchShape& shape, hipStream_t stream);
// On a device that is prepared.
hipError_t DispatchBlocksPerUnit(const DispatchVariant& variant, const LaunchShape& shape,
                                 int* blocks);

// One kernel for each: together they would not fit into the registers.
struct CombineVariant {
  bool fp16;
  bool traced;
  CombineRows rows;
};
// Loads the kernel on the current device.
hipError_t LoadCombine(const CombineVariant& variant);
hipError_t LaunchCombine(const CombineParams& params, const CombineVariant& variant,
                         const LaunchShape& shape, hipStream_t stream);
hipError_t CombineBlocksPerUnit(const CombineVariant& variant, const LaunchShape& shape,
                                int* blocks);

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_KERNELS_H_
