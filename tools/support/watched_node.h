// A node for a program that must end even if a rank's thread is stuck.
#ifndef OCTET_TOOLS_SUPPORT_WATCHED_NODE_H_
#define OCTET_TOOLS_SUPPORT_WATCHED_NODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/node.h"

namespace octet {

// Returns how long a Run may take to return after a failure was noticed: twice the node's timeout
// and 20 s. Ranks whose threads are not stuck return earlier (NodeOptions::timeout).
absl::Duration FailureGrace(absl::Duration timeout);

// What on_failure of a node needs to know; must outlive the node.
struct WatchedFailures {
  std::shared_ptr<Node> node;  // Node::Share, set before the node's first Run that may fail
};
// Returns what CreateWatchedNode sets as on_failure.
FailureCallback OnWatchedFailure(const std::shared_ptr<WatchedFailures>& watched);

// Like Node::Create, but sets on_failure in `options`. If a failed Run does not return, or the
// program does not end although the node is stuck, the failure goes to stderr after 5 s, and the
// process ends with kExitDeadline after FailureGrace, without running destructors. Otherwise
// nothing is printed: the program prints the Status that it gets.
absl::StatusOr<std::shared_ptr<Node>> CreateWatchedNode(NodeOptions options);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_WATCHED_NODE_H_
