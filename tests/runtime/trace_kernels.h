// A kernel that records nested slices.
#ifndef OCTET_TESTS_RUNTIME_TRACE_KERNELS_H_
#define OCTET_TESTS_RUNTIME_TRACE_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/launch_shape.h"
#include "runtime/device/trace_event.h"

namespace octet {

inline constexpr uint32_t kOuterTag = 0;
inline constexpr uint32_t kInnerTag = 1;
inline constexpr uint32_t kUnnamedTag = 9;
inline constexpr uint32_t kSecondTrackTag = 2;

// Each block: an outer slice (detail: block) with `inner` slices (detail: 0, 1, ...) in it one
// after the other, then an empty slice with kUnnamedTag. With `second_track`, the last thread
// records kSecondTrackTag on track 1 meanwhile, with details block, 10, 11, 12.
struct TracedParams {
  device::TraceBuffer trace;
  int inner;
  bool second_track = false;
};
hipError_t LaunchTraced(const TracedParams& params, LaunchShape shape, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_RUNTIME_TRACE_KERNELS_H_
