// Limits of the launch shapes that strategies choose by default.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_LAUNCH_LIMITS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_LAUNCH_LIMITS_H_

#include <cstdint>

namespace octet::platform {

struct LaunchLimits {
  int blocks;
  int waves;  // of each block
};

// Returns the limits of a launch whose ranks send at most `bytes` of rows each, unless the caller
// or the tuning requests more. All lanes of an emulated GPU share one core: each block and wave
// costs time in every call, and rows are moved no faster. So small calls get one block that sends
// and one that receives, a wave each. Larger calls can afford that several blocks, and several
// waves of each, race.
constexpr LaunchLimits DefaultLaunchLimits(int64_t bytes) {
  constexpr int64_t kSmallCallBytes = int64_t{1} << 20;
  return bytes < kSmallCallBytes ? LaunchLimits{.blocks = 2, .waves = 1}
                                 : LaunchLimits{.blocks = 4, .waves = 2};
}

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_LAUNCH_LIMITS_H_
