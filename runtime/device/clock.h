// The GPUs' clocks, for host code: their rate, and how far apart two of them are.
#ifndef OCTET_RUNTIME_DEVICE_CLOCK_H_
#define OCTET_RUNTIME_DEVICE_CLOCK_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/failure_record.h"

namespace octet::device {

// Ticks of Clock() per second.
uint64_t ClockHz();

// What the other GPU of a pair writes; in the memory of the one that reads it, zero at the start.
struct alignas(128) ClockMailbox {
  uint64_t round;  // stored last, with release
  uint64_t clock;  // the writer's, when it had seen the round
};

struct ClockOffset {
  int64_t offset_ticks;       // the responder's clock minus the caller's
  uint64_t round_trip_ticks;  // of the quickest round: the offset is within half of it
};

// Two GPUs measure together, each with its half of the pair's parameters.
struct ClockPairParams {
  ClockMailbox* mine;
  ClockMailbox* theirs;
  ClockOffset* result;  // in the caller's memory; the responder's is not used
  FailurePort port;
  uint32_t site;
  int32_t peer;  // whom to name when it does not answer
  uint32_t rounds;
};

// The caller sends round after round and looks at the clock before and after; the responder looks
// at its own in between. `result` is left as it was when a wait failed.
hipError_t LaunchClockCaller(const ClockPairParams& params, hipStream_t stream);
hipError_t LaunchClockResponder(const ClockPairParams& params, hipStream_t stream);

// Loads both kernels on the current device.
hipError_t LoadClockKernels();

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_CLOCK_H_
