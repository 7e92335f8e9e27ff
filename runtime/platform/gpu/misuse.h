// Detects API misuse that only emulated GPUs can find at no cost. On GPUs it does nothing.
#ifndef OCTET_RUNTIME_PLATFORM_GPU_MISUSE_H_
#define OCTET_RUNTIME_PLATFORM_GPU_MISUSE_H_

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <optional>
#include <string>

namespace octet::platform {

class BodyWatch {
 public:
  template <typename Report>
  explicit BodyWatch(const Report& /*report*/) {}
};

inline void KernelsWait(hipStream_t /*stream*/) {}
inline void KernelsHaveEnded() {}
inline std::string PlaceOutside(int /*device*/, const void* /*pointer*/) { return {}; }
inline std::optional<size_t> BytesFrom(const void* /*pointer*/) { return std::nullopt; }

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_GPU_MISUSE_H_
