// Limits of the launch shapes that strategies choose by default. Each platform has this header;
// GPUs have no limit.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_LAUNCH_LIMITS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_LAUNCH_LIMITS_H_

namespace octet::platform {

struct LaunchLimits {
  int blocks;
  int waves;  // of each block
};

// Holds unless the caller or the tuning requests more. All lanes of an emulated GPU share one core,
// so more of them only cost time: as many as fit take 2 to 10 times as long for small shapes, and
// no shape gains. These limits still let several blocks, and several waves of each, race.
inline constexpr LaunchLimits kDefaultLaunchLimits = {.blocks = 4, .waves = 2};

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_LAUNCH_LIMITS_H_
