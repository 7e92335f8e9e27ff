// Detects API misuse that only emulated GPUs can find at no cost. Each platform has this header; on
// GPUs it does nothing.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MISUSE_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MISUSE_H_

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "emulation.h"

namespace octet::platform {

// While it lives, the calling thread runs the body of a rank. A HIP call that can wait for a device
// while kernels may wait for other ranks is then reported as a sentence, whatever the timing. The
// report comes from inside the call, which afterwards does its work.
class BodyWatch {
 public:
  template <typename Report>
  explicit BodyWatch(Report report) {
    emulation::BeginBody(std::move(report));
  }
  ~BodyWatch() { emulation::EndBody(); }
  BodyWatch(const BodyWatch&) = delete;
  BodyWatch& operator=(const BodyWatch&) = delete;
};

// The calling thread's body has enqueued kernels that wait for other ranks, or has waited for all
// of them.
inline void KernelsWait(hipStream_t stream) { emulation::KernelsWait(stream); }
inline void KernelsHaveEnded() { emulation::KernelsHaveEnded(); }

// Returns where `pointer` lies; empty if it is null or memory of the device.
inline std::string PlaceOutside(int device, const void* pointer) {
  return emulation::PlaceOutside(device, pointer);
}

// Returns the bytes from `pointer` to the end of its allocation; nullopt if they are not known, as
// on all other platforms.
inline std::optional<size_t> BytesFrom(const void* pointer) {
  return emulation::BytesFrom(pointer);
}

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MISUSE_H_
