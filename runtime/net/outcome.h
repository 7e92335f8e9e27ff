// What the nodes of a World have to say to each other about a call, and which error follows.
#ifndef OCTET_RUNTIME_NET_OUTCOME_H_
#define OCTET_RUNTIME_NET_OUTCOME_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

// NodeFailure::phase of a rank that waited for another node, or was sent something else than it
// expects (NodeFailure::Kind::kInput); NodeFailure::index is that node.
inline constexpr absl::string_view kExchangePhase = "exchange between nodes";

// Returns the cause among the nodes' results of one Run, prefixed with "node n: ". OK if all are.
//   1. an error of a node's own;
//   2. an expired wait for a node that did not itself wait for a node;
//   3. any other expired wait for a node;
//   4. an exchange that another node has not made alike. A node whose communicator is aborted can
//      send bytes of no meaning, so this may be the effect of a failure there;
//   5. kAborted: an error that is probably the effect of a failure elsewhere;
//   6. kCancelled: released by a failure elsewhere.
// The lowest node's if several are alike.
absl::Status CauseOf(absl::Span<const absl::Status> outcomes);

// Returns OK if all values are the same, else kInvalidArgument:
//   "the nodes differ in the number of ranks: 2 on node 0, 4 on node 1"
// Of values with members, which ", " separates, only those that differ are named:
//   "the nodes differ in the options: topk 4 on node 0, topk 8 on node 1; graph only on node 1"
absl::Status CheckSame(absl::string_view what, absl::Span<const std::string> values);

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_OUTCOME_H_
