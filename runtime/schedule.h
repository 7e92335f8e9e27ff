// Schedules of emulated GPUs: who is late, as a text that replays the run.
#ifndef OCTET_RUNTIME_SCHEDULE_H_
#define OCTET_RUNTIME_SCHEDULE_H_

#include <string>

#include "absl/status/status.h"

namespace octet {

// Everything from now on runs under that schedule, which is SEED or KIND:SEED
// (runtime/platform/emulation/machine/config.h), on one thread, so that it runs the same each time.
// Before anything else is done with the GPUs.
//   kFailedPrecondition  these are no emulated GPUs
//   kInvalidArgument     the text is no schedule
absl::Status UseSchedule(const std::string& text);

// "KIND:SEED". Empty without a schedule, as on real GPUs.
std::string CurrentSchedule();

// The error with the schedule that replays it at the end, if there is one.
absl::Status WithSchedule(const absl::Status& status);

}  // namespace octet

#endif  // OCTET_RUNTIME_SCHEDULE_H_
