#include "runtime/node/schedule.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gpu_schedule.h"
#include "runtime/failure/failure.h"

namespace octet {

absl::Status UseSchedule(const std::string& text) {
  if (!platform::kHasSchedules) {
    return absl::FailedPreconditionError(
        absl::StrCat("schedule ", text,
                     " cannot be had: only emulated GPUs can be told in which "
                     "order to run, and this program is built for ",
                     OCTET_PLATFORM_NAME));
  }
  if (!platform::UseSchedule(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is no schedule; SEED and KIND:SEED are, with a whole number "
                     "from 1 up and a kind of ",
                     platform::ScheduleKinds()));
  }
  return absl::OkStatus();
}

std::string CurrentSchedule() { return platform::CurrentSchedule(); }

absl::Status WithSchedule(const absl::Status& status) {
  const std::string schedule = CurrentSchedule();
  if (status.ok() || schedule.empty()) return status;
  const absl::string_view separator = absl::StrContains(status.message(), '\n') ? "\n" : "; ";
  return WithMessage(status,
                     absl::StrCat(status.message(), separator, "replay: --schedule=", schedule));
}

}  // namespace octet
