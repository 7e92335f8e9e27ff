// The GPUs' clocks, for host code: their rate, and the offset between two of them.
#ifndef OCTET_RUNTIME_DEVICE_CLOCK_H_
#define OCTET_RUNTIME_DEVICE_CLOCK_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/failure_record.h"

namespace octet::device {

// Returns the ticks of Clock() per second.
uint64_t ClockHz();

// Written by the other GPU of a pair; lies in the memory of the GPU that reads it, initially zero.
struct alignas(128) ClockMailbox {
  uint64_t round;  // stored last, with release
  uint64_t clock;  // the writer's, when it saw the round
};

struct ClockOffset {
  int64_t offset_ticks;       // the responder's clock minus the caller's
  uint64_t round_trip_ticks;  // of the fastest round; the offset's error is at most half of it
};

// Each of the two GPUs that measure together has its own half of these parameters.
struct ClockPairParams {
  ClockMailbox* mine;
  ClockMailbox* theirs;
  ClockOffset* result;  // in the caller's memory; the responder does not use it
  FailurePort port;
  uint32_t site;
  int32_t peer;  // the rank to name when it does not answer
  uint32_t rounds;
};

// In each round the caller reads its clock before and after; the responder reads its own in
// between. If a wait fails, `result` is unchanged.
hipError_t LaunchClockCaller(const ClockPairParams& params, hipStream_t stream);
hipError_t LaunchClockResponder(const ClockPairParams& params, hipStream_t stream);

// Loads both kernels on the current device (load_kernel.h).
hipError_t LoadClockKernels();

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_CLOCK_H_
