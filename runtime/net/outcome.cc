#include "runtime/net/outcome.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/node_failure.h"
#include "runtime/failure/failure.h"

namespace octet {
namespace {

// The lowest value wins; see CauseOf.
enum Order {
  kOwnError,
  kWaitForSilentNode,
  kWaitForWaitingNode,
  kMismatch,
  kAborted,
  kReleased,
  kNoError
};

// Returns the other node of a failed exchange, if `status` is such a failure of this kind.
std::optional<size_t> NodeOfExchange(const absl::Status& status, NodeFailure::Kind kind) {
  const std::optional<NodeFailure> failure = FailureOf(status);
  if (!failure.has_value() || failure->phase != kExchangePhase || failure->kind != kind) {
    return std::nullopt;
  }
  return failure->index;
}
// The node that an expired wait waited for.
std::optional<size_t> AwaitedNode(const absl::Status& status) {
  return NodeOfExchange(status, NodeFailure::Kind::kWait);
}
bool IsMismatch(const absl::Status& status) {
  return NodeOfExchange(status, NodeFailure::Kind::kInput).has_value();
}

// Returns what differs between the values of node 0 and of `node`.
std::string DifferenceOf(absl::string_view first, absl::string_view other, size_t node) {
  constexpr absl::string_view kBetween = ", ";
  const std::vector<std::string> members = absl::StrSplit(first, kBetween, absl::SkipEmpty());
  std::vector<std::string> others = absl::StrSplit(other, kBetween, absl::SkipEmpty());
  if (members.empty() || others.empty()) {
    return absl::StrCat(first, " on node 0, ", other, " on node ", node);
  }
  std::vector<std::string> parts;
  if (members.size() == others.size()) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == others[i]) continue;
      parts.push_back(absl::StrCat(members[i], " on node 0, ", others[i], " on node ", node));
    }
    return absl::StrJoin(parts, "; ");
  }
  for (const std::string& member : members) {
    const auto found = std::find(others.begin(), others.end(), member);
    if (found != others.end()) {
      others.erase(found);
    } else {
      parts.push_back(absl::StrCat(member, " only on node 0"));
    }
  }
  for (const std::string& member : others) {
    parts.push_back(absl::StrCat(member, " only on node ", node));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace

absl::Status CauseOf(absl::Span<const absl::Status> outcomes) {
  std::set<size_t> waiting;
  for (size_t node = 0; node < outcomes.size(); ++node) {
    if (AwaitedNode(outcomes[node]).has_value()) waiting.insert(node);
  }
  Order first = kNoError;
  size_t cause = 0;
  for (size_t node = 0; node < outcomes.size(); ++node) {
    const absl::Status& outcome = outcomes[node];
    if (outcome.ok()) continue;
    Order order = kOwnError;
    if (const std::optional<size_t> awaited = AwaitedNode(outcome); awaited.has_value()) {
      order = waiting.contains(*awaited) ? kWaitForWaitingNode : kWaitForSilentNode;
    } else if (IsMismatch(outcome)) {
      order = kMismatch;
    } else if (absl::IsAborted(outcome)) {
      order = kAborted;
    } else if (absl::IsCancelled(outcome)) {
      order = kReleased;
    }
    if (order >= first) continue;
    first = order;
    cause = node;
  }
  if (first == kNoError) return absl::OkStatus();
  return WithMessage(outcomes[cause],
                     absl::StrCat("node ", cause, ": ", outcomes[cause].message()));
}

absl::Status CheckSame(absl::string_view what, absl::Span<const std::string> values) {
  for (size_t node = 1; node < values.size(); ++node) {
    if (values[node] == values[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat("the nodes differ in ", what, ": ",
                                                   DifferenceOf(values[0], values[node], node)));
  }
  return absl::OkStatus();
}

}  // namespace octet
