// A node for a program that must end, whatever happens to the ranks' threads.
#ifndef OCTET_TOOLS_SUPPORT_WATCHED_NODE_H_
#define OCTET_TOOLS_SUPPORT_WATCHED_NODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/node.h"

namespace octet {

// How long after a failure was noticed its Run may take to come back: twice the node's timeout and
// 20 s. Ranks whose threads are not stuck are back before (NodeOptions::timeout).
absl::Duration FailureGrace(absl::Duration timeout);

// As Node::Create, with an on_failure of its own in `options`. If a failed Run does not come back,
// or the program does not end although the node is stuck, the failure goes to stderr after 5 s, and
// the process ends with kExitDeadline after FailureGrace, without running destructors. Otherwise
// nothing is printed: the program prints the Status that it gets.
absl::StatusOr<std::shared_ptr<Node>> CreateWatchedNode(NodeOptions options);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_WATCHED_NODE_H_
