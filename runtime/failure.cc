#include "runtime/failure.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/device/clock.h"
#include "runtime/device/failure_record.h"

namespace octet {

absl::Status DeadlineStatus(int rank, absl::string_view phase, absl::string_view flag,
                            const device::FailureRecord& record, absl::Duration waited) {
  const std::string owner = record.peer >= 0 ? absl::StrCat("rank ", record.peer, "'s ") : "";
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", rank, ": ", phase, " waited ", WaitText(waited), " for ", owner, flag, " ",
      record.index, ": expected epoch ", record.expected, ", seen ", record.seen));
}

absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status with(status.code(), message);
  status.ForEachPayload(
      [&with](absl::string_view url, const absl::Cord& payload) { with.SetPayload(url, payload); });
  return with;
}

absl::string_view FirstLine(const absl::Status& status) {
  return status.message().substr(0, status.message().find('\n'));
}

std::string WaitText(absl::Duration waited) {
  if (waited >= absl::Seconds(1)) {
    return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(waited));
  }
  return absl::StrFormat("%.3g ms", absl::ToDoubleMilliseconds(waited));
}

uint64_t DeviceClockHz() {
  // All callers have a node, so a GPU is present.
  static const uint64_t kTicksPerSecond = device::ClockHz();
  return kTicksPerSecond;
}

absl::Duration DeviceTicks(uint64_t ticks) {
  return absl::Seconds(static_cast<double>(ticks) / static_cast<double>(DeviceClockHz()));
}

uint64_t DeviceTicksOf(absl::Duration duration) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  const double ticks = absl::ToDoubleSeconds(duration) * static_cast<double>(DeviceClockHz());
  if (ticks >= static_cast<double>(kMost)) return kMost;
  if (ticks > 0 && ticks < 1) return 1;
  return ticks > 0 ? static_cast<uint64_t>(ticks) : 0;
}

}  // namespace octet
