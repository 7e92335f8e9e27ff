// Several nodes joined by rails, for tests of calls over all of them: in one process, each with its
// own threads, or one node in each of several processes.
#ifndef OCTET_TESTS_SUPPORT_NODES_JOINED_NODES_H_
#define OCTET_TESTS_SUPPORT_NODES_JOINED_NODES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "octet/domain.h"
#include "octet/node.h"
#include "tests/support/nodes/local_domain.h"
#include "tests/support/nodes/local_rail.h"

namespace octet {

// Ranks are numbered over all nodes: "global". A body of a Run gets its rank's global number.
class JoinedNodes {
 public:
  using Body = std::function<absl::Status(Rank&, int)>;
  // A node of this process.
  struct OneNode {
    std::unique_ptr<Node> node;          // null: somebody else's, as is the domain
    std::unique_ptr<LocalDomain> owned;  // gone before the node
    Domain* domain = nullptr;
  };

  // All nodes in this process, on LocalRails.
  static absl::StatusOr<std::unique_ptr<JoinedNodes>> Create(const NodesOfRanks& shape,
                                                             absl::Duration timeout);
  // One of the nodes of several processes. `world` must outlive it.
  static std::unique_ptr<JoinedNodes> Join(Domain& world,
                                           CombineOrder intranode_order = CombineOrder::kAuto);

  const NodesOfRanks& shape() const { return shape_; }
  int num_ranks() const { return shape_.num_nodes * shape_.ranks_per_node; }
  const std::vector<OneNode>& nodes() const { return nodes_; }  // of this process, ascending
  int64_t bytes() const { return rails_.bytes(); }              // that have crossed between nodes
  // Returns the index in nodes() of a global rank's node.
  size_t IndexOf(int global) const {
    return static_cast<size_t>(global / shape_.ranks_per_node -
                               nodes_.front().domain->node_index());
  }

  // Calls `body` on all ranks of all nodes at once. Returns the status of each node of this
  // process.
  std::vector<absl::Status> RunAll(const Body& body) const;
  // Returns the first error; one that is no expired wait, if there is any: nodes of one process do
  // not tell each other that they have failed, so that others wait for them.
  absl::Status Run(const Body& body) const;
  // Calls `body` on the ranks of this process's nodes, one node after the other.
  absl::Status OneByOne(const Body& body) const;

 private:
  explicit JoinedNodes(const NodesOfRanks& shape)
      : shape_(shape), rails_(shape.num_nodes, shape.ranks_per_node) {}

  const NodesOfRanks shape_;
  LocalRails rails_;
  std::vector<OneNode> nodes_;
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NODES_JOINED_NODES_H_
