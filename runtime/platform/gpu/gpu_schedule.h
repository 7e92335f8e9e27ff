// Real GPUs choose the order of execution themselves: there are no schedules.
#ifndef OCTET_RUNTIME_PLATFORM_GPU_GPU_SCHEDULE_H_
#define OCTET_RUNTIME_PLATFORM_GPU_GPU_SCHEDULE_H_

#include <string>

namespace octet::platform {

inline constexpr bool kHasSchedules = false;
inline std::string ScheduleKinds() { return {}; }
inline bool UseSchedule(const std::string& /*text*/) { return false; }
inline std::string CurrentSchedule() { return {}; }
inline std::string WhatHolds(int /*device*/) { return {}; }

class HostWait {
 public:
  template <typename Over>
  explicit HostWait(const Over& /*over*/) {}
};

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_GPU_GPU_SCHEDULE_H_
