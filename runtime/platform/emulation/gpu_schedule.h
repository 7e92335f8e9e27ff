// The order in which emulated GPUs run everything. Each platform has this header; GPUs have no say
// in theirs.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_GPU_SCHEDULE_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_GPU_SCHEDULE_H_

#include <string>
#include <utility>

#include "emulation.h"

namespace octet::platform {

inline constexpr bool kHasSchedules = true;

// "random, lap, ...".
inline std::string ScheduleKinds() { return emulation::ScheduleKinds(); }

// Starts the GPUs afresh under that schedule: nothing may be in use yet. False if the text is none.
inline bool UseSchedule(const std::string& text) {
  emulation::Config config = emulation::Config::FromEnvironment();
  if (!emulation::ParseSchedule(text, &config)) return false;
  config.workers = 1;  // more are not replayed exactly
  emulation::Reconfigure(config);
  return true;
}

// What UseSchedule needs to run the same again. Empty: as fast as possible.
inline std::string CurrentSchedule() { return emulation::ScheduleText(emulation::CurrentConfig()); }

// While it lives, the calling thread waits for other host threads, unless `over`(), which any
// thread may call and which takes no lock: under a schedule the GPUs go on when all hosts wait.
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
