// Schedules of emulated GPUs, named by a text that replays the run.
#ifndef OCTET_RUNTIME_NODE_SCHEDULE_H_
#define OCTET_RUNTIME_NODE_SCHEDULE_H_

#include <string>

#include "absl/status/status.h"

namespace octet {

// Runs everything from now on under the schedule `text`, which is SEED or KIND:SEED
// (runtime/platform/emulation/machine/config.h), on one thread, so that every run is the same. Must
// precede all use of the GPUs.
//   kFailedPrecondition  the GPUs are not emulated
//   kInvalidArgument     the text does not name a schedule
absl::Status UseSchedule(const std::string& text);

// Returns "KIND:SEED"; empty without a schedule and on real GPUs.
std::string CurrentSchedule();

// Appends the schedule that replays the error to its message, if there is one.
absl::Status WithSchedule(const absl::Status& status);

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_SCHEDULE_H_
