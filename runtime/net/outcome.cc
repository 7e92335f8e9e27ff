#include "runtime/net/outcome.h"

#include <cstddef>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/node_failure.h"
#include "runtime/failure.h"

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
    return absl::InvalidArgumentError(absl::StrCat("the nodes differ in ", what, ": ", values[0],
                                                   " on node 0, ", values[node], " on node ",
                                                   node));
  }
  return absl::OkStatus();
}

}  // namespace octet
