// The kernels of `direct` and their parameters. Shared by the host class and the .hip files.
#ifndef OCTET_KERNELS_DIRECT_KERNELS_H_
#define OCTET_KERNELS_DIRECT_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/call_params.h"
#include "kernels/device/site.h"
#include "kernels/direct/layout.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet::direct {

// Threads of a block at most; the kernels are compiled so that two such blocks fit on an H200 SM.
inline constexpr int kMaxThreads = 512;

// Tags in traces; direct.cc has their names.
enum class Tag : uint32_t {
  kRoute,          // routing read, counts and places known
  kCreditWait,     // until peers have consumed the call before
  kSend,           // a row part on its way; detail: destination
  kCountWait,      // until all counts are there; detail: the source that was missing last
  kRowWait,        // for a row part; detail: source
  kCopy,           // a row part to its place; detail: row
  kCombineCredit,  // as kCreditWait
  kCombineSend,    // a row part on its way home; detail: origin
  kCombineWait,    // for all of a token's outputs; detail: the rank whose was missing last
  kReduce,         // their sum; detail: token
};

// What every kernel of this strategy gets.
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

// Dynamic shared memory of a block of either kernel.
size_t SharedBytes(const Layout& layout);

// `traced` picks the variant that records into common.trace. Cooperative: all blocks are resident.
// Load...: loads the kernel on the current device.
hipError_t LoadDispatch(bool traced);
hipError_t LaunchDispatch(const DispatchParams& params, bool traced, const LaunchShape& shape,
                          hipStream_t stream);
hipError_t DispatchBlocksPerUnit(bool traced, const LaunchShape& shape, int* blocks);

// T: the element type's codec is chosen by `fp16`.
hipError_t LoadCombine(bool fp16, bool traced);
hipError_t LaunchCombine(const CombineParams& params, bool fp16, bool traced,
                         const LaunchShape& shape, hipStream_t stream);
hipError_t CombineBlocksPerUnit(bool fp16, bool traced, const LaunchShape& shape, int* blocks);

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_KERNELS_H_
