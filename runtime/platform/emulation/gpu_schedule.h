// Schedules: the order in which emulated GPUs execute. Each platform has this header; on real GPUs
// it has no effect.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_GPU_SCHEDULE_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_GPU_SCHEDULE_H_

#include <string>
#include <utility>

#include "emulation.h"

namespace octet::platform {

inline constexpr bool kHasSchedules = true;

// Returns "random, lap, ...".
inline std::string ScheduleKinds() { return emulation::ScheduleKinds(); }

// Restarts the GPUs under the schedule `text`; nothing may be in use yet. Returns false if `text`
// does not name a schedule.
inline bool UseSchedule(const std::string& text) {
  emulation::Config config = emulation::Config::FromEnvironment();
  if (!emulation::ParseSchedule(text, &config)) return false;
  config.workers = 1;  // runs with more workers do not replay exactly
  emulation::Reconfigure(config);
  return true;
}

// Returns the text that makes UseSchedule repeat this run. Empty: no schedule, as fast as possible.
inline std::string CurrentSchedule() { return emulation::ScheduleText(emulation::CurrentConfig()); }

// Returns why an emulated device has had no chance to run for a while, in a sentence that names the
// kernel that has held its thread. Empty if it has had one.
inline std::string WhatHolds(int device) { return emulation::WhatHolds(device); }

// While it lives, the calling thread waits for other host threads unless `over()` is true. Any
// thread may call `over`, which takes no lock. Under a schedule the GPUs continue when all hosts
// wait.
class HostWait {
 public:
  template <typename Over>
  explicit HostWait(Over over) {
    emulation::BeginHostWait(std::move(over));
  }
  ~HostWait() { emulation::EndHostWait(); }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;
};

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_GPU_SCHEDULE_H_
