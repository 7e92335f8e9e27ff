#include "runtime/failure/failure.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
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

// The payload of a Status that reports a failure. Status::ToString prints it, so it reads like a
// line of a report: "kind: wait; rank: 3; peer: 5; ...", without members that have their defaults.
// `flag` comes last: only it may contain the separator.
constexpr absl::string_view kPayloadUrl = "octet.dev/node_failure";
constexpr absl::string_view kLostNodeUrl = "octet.dev/lost_node";
constexpr absl::string_view kSeparator = "; ";
constexpr absl::string_view kKinds[] = {"error", "wait", "input"};

// Escapes what the payload means something by, in a name that a user has given.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {";", "\\s"}});
}
std::string Unescaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\\\", "\\"}, {"\\s", ";"}});
}

std::vector<std::pair<absl::string_view, std::string>> MembersOf(const NodeFailure& failure) {
  return {{"kind", std::string(kKinds[static_cast<size_t>(failure.kind)])},
          {"rank", absl::StrCat(failure.rank)},
          {"peer", absl::StrCat(failure.peer)},
          {"index", absl::StrCat(failure.index)},
          {"expected", absl::StrCat(failure.expected)},
          {"seen", absl::StrCat(failure.seen)},
          {"waited", absl::FormatDuration(failure.waited)},
          {"phase", failure.phase},
          {"object", Escaped(failure.object)},
          {"flag", failure.flag}};
}

std::string Encoded(const NodeFailure& failure) {
  const auto members = MembersOf(failure);
  const auto defaults = MembersOf({});
  std::vector<std::string> parts;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& [name, value] = members[i];
    if (value != defaults[i].second) parts.push_back(absl::StrCat(name, ": ", value));
  }
  return absl::StrJoin(parts, kSeparator);
}

// The members that a payload has, by name.
std::map<absl::string_view, absl::string_view> PartsOf(absl::string_view payload) {
  std::map<absl::string_view, absl::string_view> parts;
  while (!payload.empty()) {
    const std::pair<absl::string_view, absl::string_view> named =
        absl::StrSplit(payload, absl::MaxSplits(": ", 1));
    const std::pair<absl::string_view, absl::string_view> value =
        absl::StrSplit(named.second, absl::MaxSplits(kSeparator, 1));
    const bool last = named.first == "flag";
    parts[named.first] = last ? named.second : value.first;
    payload = last ? "" : value.second;
  }
  return parts;
}

std::optional<NodeFailure> Decoded(absl::string_view payload) {
  const auto parts = PartsOf(payload);
  const auto text = [&parts](absl::string_view name) {
    const auto found = parts.find(name);
    return found != parts.end() ? found->second : absl::string_view();
  };
  const auto number = [&text](absl::string_view name, auto* value) {
    return text(name).empty() || absl::SimpleAtoi(text(name), value);
  };
  NodeFailure failure;
  if (!number("rank", &failure.rank) || !number("peer", &failure.peer) ||
      !number("index", &failure.index) || !number("expected", &failure.expected) ||
      !number("seen", &failure.seen) ||
      !(text("waited").empty() || absl::ParseDuration(text("waited"), &failure.waited))) {
    return std::nullopt;
  }
  const auto* const kind = absl::c_find(kKinds, text("kind"));
  if (kind != std::end(kKinds)) failure.kind = static_cast<NodeFailure::Kind>(kind - kKinds);
  failure.phase = std::string(text("phase"));
  failure.object = Unescaped(text("object"));
  failure.flag = std::string(text("flag"));
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
  status.SetPayload(kLostNodeUrl, absl::Cord("a node has died or been stopped"));
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
