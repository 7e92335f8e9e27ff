#include "tests/support/nodes/joined_nodes.h"

#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "runtime/base/status_macros.h"

namespace octet {

absl::StatusOr<std::unique_ptr<JoinedNodes>> JoinedNodes::Create(const NodesOfRanks& shape,
                                                                 absl::Duration timeout) {
  auto joined = absl::WrapUnique(new JoinedNodes(shape));
  for (int n = 0; n < shape.num_nodes; ++n) {
    OneNode node;
    OCTET_ASSIGN_OR_RETURN(node.node, Node::Create({.num_ranks = shape.ranks_per_node,
                                                    .timeout = timeout,
                                                    .on_failure = nullptr}));
    OCTET_ASSIGN_OR_RETURN(std::vector<Rail*> rails, joined->rails_.Connect(n, *node.node));
    node.owned = std::make_unique<LocalDomain>(*node.node, std::move(rails));
    node.domain = node.owned.get();
    joined->nodes_.push_back(std::move(node));
  }
  return joined;
}

std::unique_ptr<JoinedNodes> JoinedNodes::Join(Domain& world, CombineOrder intranode_order) {
  auto joined = absl::WrapUnique(new JoinedNodes(NodesOf(world, intranode_order)));
  OneNode own;
  own.domain = &world;
  joined->nodes_.push_back(std::move(own));
  return joined;
}

std::vector<absl::Status> JoinedNodes::RunAll(const Body& body) const {
  std::vector<absl::Status> statuses(nodes_.size());
  std::vector<std::thread> threads;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    threads.emplace_back([&, n] {
      Domain& domain = *nodes_[n].domain;
      statuses[n] =
          domain.Run([&](Rank& rank) { return body(rank, domain.GlobalRank(rank.rank())); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::Status JoinedNodes::Run(const Body& body) const {
  absl::Status cause;
  for (absl::Status& status : RunAll(body)) {
    const bool better = absl::IsDeadlineExceeded(cause) && !absl::IsDeadlineExceeded(status);
    if (cause.ok() || (better && !status.ok())) cause = std::move(status);
  }
  return cause;
}

absl::Status JoinedNodes::OneByOne(const Body& body) const {
  for (const OneNode& node : nodes_) {
    OCTET_RETURN_IF_ERROR(node.domain->node().Run(
        [&](Rank& rank) { return body(rank, node.domain->GlobalRank(rank.rank())); }));
  }
  return absl::OkStatus();
}

}  // namespace octet
