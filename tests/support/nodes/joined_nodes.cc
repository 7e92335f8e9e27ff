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
    node.number = n;
    OCTET_ASSIGN_OR_RETURN(node.owned, Node::Create({.num_ranks = shape.ranks_per_node,
                                                     .timeout = timeout,
                                                     .on_failure = nullptr}));
    node.node = node.owned.get();
    node.run = [node = node.node](absl::FunctionRef<absl::Status(Rank&)> body) {
      return node->Run(body);
    };
    OCTET_ASSIGN_OR_RETURN(node.rails, joined->rails_.Connect(n, *node.node));
    joined->nodes_.push_back(std::move(node));
  }
  return joined;
}

std::unique_ptr<JoinedNodes> JoinedNodes::Join(Node& node, const std::vector<Rail*>& rails,
                                               const RunTogether& run, const NodesOfRanks& shape) {
  auto joined = absl::WrapUnique(new JoinedNodes(shape));
  OneNode own;
  own.number = rails.front()->node();
  own.node = &node;
  own.run = run;
  own.rails = rails;
  joined->nodes_.push_back(std::move(own));
  return joined;
}

std::vector<absl::Status> JoinedNodes::RunAll(const Body& body) const {
  std::vector<absl::Status> statuses(nodes_.size());
  std::vector<std::thread> threads;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    threads.emplace_back([&, n] {
      const OneNode& node = nodes_[n];
      statuses[n] = node.run([&](Rank& rank) { return body(rank, GlobalOf(node, rank)); });
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
    OCTET_RETURN_IF_ERROR(
        node.node->Run([&](Rank& rank) { return body(rank, GlobalOf(node, rank)); }));
  }
  return absl::OkStatus();
}

}  // namespace octet
