// The deadline of warps of a product that wait for one another.
#ifndef OCTET_KERNELS_FUSED_GIVES_UP_H_
#define OCTET_KERNELS_FUSED_GIVES_UP_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/credits.h"
#include "kernels/high_throughput/sites.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/wait.h"

namespace octet::fused {

// Whether so many deadlines have passed, and some more. The kernel is then ended as one with an
// error, so the deadlines of all waits that can end otherwise must have passed, however short.
__device__ __forceinline__ bool GivesUp(const device::FailurePort& failure, uint64_t waited,
                                        uint64_t deadlines) {
  constexpr uint64_t kMore = 10 * device::kClockHz;
  return waited > kMore && (waited - kMore) / deadlines > failure.deadline_ticks;
}

// Writes the record of that.
__device__ __forceinline__ void TellStuck(const device::FailurePort& failure, uint64_t epoch) {
  device::Fail(
      failure, device::FailureKind::kDeadline,
      device::MakeSite(high_throughput::Site::kProductBlock, -1, static_cast<uint32_t>(blockIdx.x)),
      epoch, 0, failure.deadline_ticks);
}

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_GIVES_UP_H_
