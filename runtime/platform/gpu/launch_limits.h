// Limits of the launch shapes that strategies choose by default. GPUs have none.
#ifndef OCTET_RUNTIME_PLATFORM_GPU_LAUNCH_LIMITS_H_
#define OCTET_RUNTIME_PLATFORM_GPU_LAUNCH_LIMITS_H_

#include <cstdint>
#include <limits>

namespace octet::platform {

struct LaunchLimits {
  int blocks;
  int waves;  // of each block
};

constexpr LaunchLimits DefaultLaunchLimits(int64_t /*bytes*/) {
  return {.blocks = std::numeric_limits<int>::max(), .waves = std::numeric_limits<int>::max()};
}

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_GPU_LAUNCH_LIMITS_H_
