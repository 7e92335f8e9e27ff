// The kernels of `low_latency` and their parameters. Shared by the host class and the .hip files.
#ifndef OCTET_KERNELS_LOW_LATENCY_KERNELS_H_
#define OCTET_KERNELS_LOW_LATENCY_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/ep/device/call_end_params.h"
#include "kernels/ep/device/call_params.h"
#include "kernels/ep/device/call_statistics.h"
#include "kernels/low_latency/layout.h"
#include "kernels/low_latency/sites.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet::low_latency {

// The most threads of a block; the kernels are compiled so that two such blocks fit on an H200 SM.
inline constexpr int kMaxThreads = 512;

// Tags in traces; low_latency.cc has their names.
enum class Tag : uint32_t {
  kRoute,        // read the routing; destination offsets and credits are known
  kSend,         // send a token to all its ranks; detail: token
  kCountWait,    // wait for all counts; detail: the source that was missing last
  kPacketWait,   // wait for a token; detail: source
  kCopy,         // copy its row to the destination offsets of its choices; detail: their number
  kCombineSend,  // return a batch of rows; detail: their number
  kCombineWait,  // wait for all of a token's rows; detail: the rank that was missing last
  kReduce,       // sum them; detail: token
};

// Parameters of every kernel of this strategy.
struct CommonParams : CallParams {
  Layout layout;
  State* state;
  Kept kept;        // of this dispatch, or of the dispatch that is combined
  int send_blocks;  // 0: the launch only receives; the whole grid: it only sends (phase.h)
  CallEndParams end;
  CallStatistics statistics;
};

struct DispatchParams : DispatchTensors {
  CommonParams common;
  // Written by the receivers; those that may be null are then not needed.
  int row_waves;            // waves that take a row together
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

// Returns the dynamic shared memory of a block of the dispatch kernel.
size_t DispatchSharedBytes(const Layout& layout);

// Each variant is a kernel. `traced`: records into common.trace. Launches are cooperative: all
// blocks are resident.
struct DispatchVariant {
  bool quantized;  // DispatchFormat::kQuantizedFp8, from fp16 or bf16
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
