// The kernels of `direct` and their parameters. Shared by the host class and the .hip files.
#ifndef OCTET_KERNELS_DIRECT_KERNELS_H_
#define OCTET_KERNELS_DIRECT_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/direct/layout.h"
#include "kernels/direct/sites.h"
#include "kernels/ep/device/call_params.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet::direct {

// The most threads of a block; the kernels are compiled so that two such blocks fit on an H200 SM.
inline constexpr int kMaxThreads = 512;

// Tags in traces; direct.cc has their names.
enum class Tag : uint32_t {
  kRoute,          // read the routing; counts and destination offsets are known
  kCreditWait,     // wait until peers have consumed the previous call
  kSend,           // send a part of a row; detail: destination
  kCountWait,      // wait for all counts; detail: the source that was missing last
  kRowWait,        // wait for a part of a row; detail: source
  kCopy,           // copy a part of a row to its destination offset; detail: row
  kCombineCredit,  // as kCreditWait
  kCombineSend,    // return a part of a row; detail: origin
  kCombineWait,    // wait for all of a token's outputs; detail: the rank that was missing last
  kReduce,         // sum them; detail: token
};

// Parameters of every kernel of this strategy.
struct CommonParams : CallParams {
  Layout layout;
  State* state;
  int send_blocks;    // blocks [0, send_blocks) send, the others receive
  bool source_flags;  // Flags::kSource
};

struct DispatchParams : DispatchTensors {
  CommonParams common;
  bool atomic_slots;  // Slots::kAtomic
  // Written by the receivers.
  void* recv_x;             // [max_rows][H]
  RowSource* sources;       // [max_rows]
  int32_t* expert_counts;   // [L]
  int32_t* expert_offsets;  // [L + 1]
};

struct CombineParams : CombineTensors {
  CommonParams common;
  // Read by the senders.
  const RowSource* sources;       // [rows]
  const int32_t* expert_offsets;  // [L + 1]
};

// Returns the dynamic shared memory of a block of either kernel.
size_t SharedBytes(const Layout& layout);

// `traced` selects the variant that records into common.trace. Launches are cooperative: all blocks
// are resident. Load... loads the kernel on the current device.
hipError_t LoadDispatch(bool traced);
hipError_t LaunchDispatch(const DispatchParams& params, bool traced, const LaunchShape& shape,
                          hipStream_t stream);
hipError_t DispatchBlocksPerUnit(bool traced, const LaunchShape& shape, int* blocks);

// `fp16` selects the codec of the element type.
hipError_t LoadCombine(bool fp16, bool traced);
hipError_t LaunchCombine(const CombineParams& params, bool fp16, bool traced,
                         const LaunchShape& shape, hipStream_t stream);
hipError_t CombineBlocksPerUnit(bool fp16, bool traced, const LaunchShape& shape, int* blocks);

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_KERNELS_H_
