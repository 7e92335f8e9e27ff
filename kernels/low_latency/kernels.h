// The kernels of `low_latency` and their parameters. Shared by the host class and the .hip files.
#ifndef OCTET_KERNELS_LOW_LATENCY_KERNELS_H_
#define OCTET_KERNELS_LOW_LATENCY_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/call_end_params.h"
#include "kernels/device/call_params.h"
#include "kernels/device/call_statistics.h"
#include "kernels/device/site.h"
#include "kernels/low_latency/layout.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet::low_latency {

// Threads of a block at most; the kernels are compiled so that two such blocks fit on an H200 SM.
inline constexpr int kMaxThreads = 512;

// Tags in traces; low_latency.cc has their names.
enum class Tag : uint32_t {
  kRoute,        // routing read, places known, credits there
  kSend,         // a token to all its ranks; detail: token
  kCountWait,    // until all counts are there; detail: the source that was missing last
  kPacketWait,   // for a token; detail: source
  kCopy,         // its row to the places of its choices; detail: their number
  kCombineSend,  // a batch of rows on their way home; detail: their number
  kCombineWait,  // for all of a token's rows; detail: the rank whose was missing last
  kReduce,       // their sum; detail: token
};

// What every kernel of this strategy gets.
struct CommonParams : CallParams {
  Layout layout;
  State* state;
  Kept kept;        // of the dispatch that the kernel is of, or combines
  int send_blocks;  // 0: the launch only receives; all of the grid's: it only sends (phase.h)
  CallEndParams end;
  CallStatistics statistics;
};

struct DispatchParams : DispatchTensors {
  CommonParams common;
  // Written by the receivers; what may be null is not asked for.
  int row_waves;            // that take a row together
  void* recv_x;             // [max_rows]
  uint32_t* recv_scales;    // [max_rows][scale_words] or nullptr
  RowSource* sources;       // [max_rows]
  RowRange* ranges;         // [L][R]
  int32_t* expert_counts;   // [L]
  int32_t* expert_offsets;  // [L + 1] or nullptr
  int32_t* split_counts;    // [R][L] or nullptr
};

struct CombineParams : CombineTensors {
  CommonParams common;
};

// Dynamic shared memory of a block of the dispatch kernel.
size_t DispatchSharedBytes(const Layout& layout);

// One kernel for each. `traced`: records into common.trace. Cooperative: all blocks are resident.
struct DispatchVariant {
  bool quantized;  // DispatchFormat::kQuantizedFp8, from
  bool fp16;       // rows of fp16; else bf16
  bool traced;
  bool watched;  // ranks may be masked, or there are statistics
};
// Loads the kernel on the current device.
hipError_t LoadDispatch(const DispatchVariant& variant);
hipError_t LaunchDispatch(const DispatchParams& params, const DispatchVariant& variant,
                          const LaunchShape& shape, hipStream_t stream);
hipError_t DispatchBlocksPerUnit(const DispatchVariant& variant, const LaunchShape& shape,
                                 int* blocks);

struct CombineVariant {
  bool fp16;
  bool traced;
  bool per_rank;  // CombineOrder::kPerRank
  bool watched;
};
hipError_t LoadCombine(const CombineVariant& variant);
hipError_t LaunchCombine(const CombineParams& params, const CombineVariant& variant,
                         const LaunchShape& shape, hipStream_t stream);
hipError_t CombineBlocksPerUnit(const CombineVariant& variant, const LaunchShape& shape,
                                int* blocks);

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_KERNELS_H_
