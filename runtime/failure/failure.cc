#include "runtime/failure/failure.h"

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "octet/node_failure.h"
#include "runtime/device/clock.h"
#include "runtime/device/failure_record.h"

namespace octet {
namespace {

// The payload of a Status that reports a failure. Status::ToString prints it, so it is text: the
// fields in the order of NodeFailure, but that `flag` comes last: only it may contain the
// separator.
constexpr absl::string_view kPayloadUrl = "octet.dev/node_failure";
constexpr absl::string_view kLostNodeUrl = "octet.dev/lost_node";
constexpr char kSeparator = '|';
constexpr int kFields = 10;

std::string Encoded(const NodeFailure& failure) {
  return absl::StrJoin(
      std::make_tuple(
          static_cast<int>(failure.kind), failure.rank, failure.peer, failure.index,
          failure.expected, failure.seen, absl::ToInt64Nanoseconds(failure.waited), failure.phase,
          absl::StrReplaceAll(failure.object, {{"\\", "\\\\"}, {"|", "\\p"}}), failure.flag),
      absl::string_view(&kSeparator, 1));
}

std::optional<NodeFailure> Decoded(const std::string& payload) {
  const std::vector<std::string> fields =
      absl::StrSplit(payload, absl::MaxSplits(kSeparator, kFields - 1));
  if (fields.size() != kFields) return std::nullopt;
  int kind = 0;
  int64_t nanoseconds = 0;
  NodeFailure failure;
  if (!absl::SimpleAtoi(fields[0], &kind) || !absl::SimpleAtoi(fields[1], &failure.rank) ||
      !absl::SimpleAtoi(fields[2], &failure.peer) || !absl::SimpleAtoi(fields[3], &failure.index) ||
      !absl::SimpleAtoi(fields[4], &failure.expected) ||
      !absl::SimpleAtoi(fields[5], &failure.seen) || !absl::SimpleAtoi(fields[6], &nanoseconds)) {
    return std::nullopt;
  }
  failure.kind = static_cast<NodeFailure::Kind>(kind);
  failure.waited = absl::Nanoseconds(nanoseconds);
  failure.phase = fields[7];
  failure.object = absl::StrReplaceAll(fields[8], {{"\\\\", "\\"}, {"\\p", "|"}});
  failure.flag = fields[9];
  return failure;
}

}  // namespace

std::optional<NodeFailure> FailureOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  return payload.has_value() ? Decoded(std::string(*payload)) : std::nullopt;
}

NodeFailure RecordedFailure(int rank, const device::FailureRecord& record, absl::string_view phase,
                            absl::string_view flag) {
  const bool input = record.kind == device::FailureKind::kInput;
  return {.kind = input ? NodeFailure::Kind::kInput : NodeFailure::Kind::kWait,
          .rank = rank,
          .peer = record.peer,
          .index = record.index,
          .expected = record.expected,
          .seen = record.seen,
          .waited = DeviceTicks(record.waited_ticks),
          .phase = std::string(phase),
          .flag = std::string(flag)};
}

absl::Status DeadlineStatus(const NodeFailure& failure) {
  const std::string owner = failure.peer >= 0 ? absl::StrCat("rank ", failure.peer, "'s ") : "";
  return WithFailure(failure, absl::DeadlineExceededError(absl::StrCat(
                                  failure.phase, " waited ", WaitText(failure.waited), " for ",
                                  owner, failure.flag, " ", failure.index, ": expected epoch ",
                                  failure.expected, ", seen ", failure.seen)));
}

absl::Status WithFailure(const NodeFailure& failure, const absl::Status& status) {
  absl::Status with =
      WithMessage(status, absl::StrCat("rank ", failure.rank, ": ", status.message()));
  with.SetPayload(kPayloadUrl, absl::Cord(absl::string_view(Encoded(failure))));
  return with;
}

absl::Status WithObject(const absl::Status& status, absl::string_view name) {
  std::optional<NodeFailure> failure = FailureOf(status);
  if (name.empty() || !failure.has_value()) return status;
  failure->object = std::string(name);
  absl::string_view message = status.message();
  absl::ConsumePrefix(&message, absl::StrCat("rank ", failure->rank, ": "));
  return WithFailure(*failure, WithMessage(status, absl::StrCat("'", name, "': ", message)));
}

absl::Status WithRank(int rank, const absl::Status& status) {
  if (status.ok() || rank == kNoRank || FailureOf(status).has_value()) return status;
  return WithFailure({.rank = rank}, status);
}

absl::Status WithLostNode(absl::Status status) {
  status.SetPayload(kLostNodeUrl, absl::Cord());
  return status;
}

bool IsLostNode(const absl::Status& status) { return status.GetPayload(kLostNodeUrl).has_value(); }

absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status with(status.code(), message);
  status.ForEachPayload([&with](absl::string_view url, const absl::Cord& payload) {
    with.SetPayload(url, absl::Cord(absl::string_view(std::string(payload))));
  });
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
