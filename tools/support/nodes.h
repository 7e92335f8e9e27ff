// The nodes that a command runs on: the one of this process, or those of several processes.
#ifndef OCTET_TOOLS_SUPPORT_NODES_H_
#define OCTET_TOOLS_SUPPORT_NODES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/hierarchical.h"
#include "octet/hierarchical_layer.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/world.h"
#include "runtime/net/rails/rail.h"
#include "tools/support/launch.h"

namespace octet {

struct NodesOptions {
  int num_ranks = 0;                              // of each node
  absl::Duration timeout = absl::ZeroDuration();  // zero: the node's own default
  absl::Status prepared = absl::OkStatus();       // WorldOptions::prepared
  RailTransport transport = RailTransport::kAuto;
};

// Functions marked *collective* are called by all processes in the same order, not inside Run. With
// one node they need nobody. Errors of collective functions are the same on all processes, those of
// a node with "node n: " before them, unless a process is lost.
class Nodes {
 public:
  virtual ~Nodes() = default;

  Node& node() const { return *node_; }  // of this process
  virtual int num_nodes() const = 0;
  virtual int node_index() const = 0;  // of this process

  int ranks_per_node() const { return node_->num_ranks(); }
  int num_ranks() const { return num_nodes() * ranks_per_node(); }  // of all nodes
  bool several() const { return num_nodes() > 1; }
  // Whether this process prints and writes what is told about all nodes.
  bool first() const { return node_index() == 0; }
  // Returns the number of a rank of this node among those of all nodes.
  int GlobalOf(int local_rank) const { return node_index() * ranks_per_node() + local_rank; }
  // Returns "node n: " before what is said about this node; nothing if it is the only one.
  std::string Prefix() const;

  // Collective. Runs `body` on every rank of every node.
  virtual absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body) = 0;
  // Collective. Returns the bytes that each node has given, by node.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes) = 0;
  // Collective. Returns OK if all nodes have given the same value, else kInvalidArgument.
  virtual absl::Status Agree(absl::string_view what, absl::string_view value) = 0;
  // Collective. Returns World::Together of what each node has given.
  virtual absl::Status Together(const absl::Status& mine) = 0;
  // Collective. Returns the largest that a node has given, of each value.
  absl::StatusOr<std::vector<double>> Largest(absl::Span<const double> mine);

  // Waits until all ranks of all nodes have called it. Inside Run; the rank's stream must be idle.
  virtual absl::Status Barrier(Rank& rank) = 0;
  // Enqueues a barrier of the GPUs of all nodes on the rank's stream: like
  // Rank::EnqueueNodeBarrier.
  virtual absl::Status EnqueueBarrier(Rank& rank) = 0;
  // Returns the connection of a rank with the other nodes; nullptr if there are none.
  virtual Rail* rail(int local_rank) const = 0;
  // Returns what carries bytes between nodes; kAuto if there is only one.
  virtual RailTransport transport() const = 0;
  // Collective. Returns calls over all ranks of all nodes.
  virtual absl::StatusOr<std::unique_ptr<ExpertParallel>> MakeExpertParallel(
      const EpConfig& config, const HierarchicalOptions& options) = 0;
  // Collective. Returns a layer over all ranks of all nodes.
  virtual absl::StatusOr<std::unique_ptr<MoeLayer>> MakeLayer(
      const MoeLayerConfig& config, const HierarchicalLayerOptions& options) = 0;

 protected:
  // `node` must outlive it.
  explicit Nodes(Node& node) : node_(&node) {}

 private:
  Node* node_;
};

// A single node.
class OneNode : public Nodes {
 public:
  explicit OneNode(std::shared_ptr<Node> node) : Nodes(*node), owned_(std::move(node)) {}
  // `node` must outlive it.
  explicit OneNode(Node& node) : Nodes(node) {}

  int num_nodes() const override { return 1; }
  int node_index() const override { return 0; }
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body) override {
    return node().Run(body);
  }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes) override {
    return std::vector<std::string>{std::string(bytes)};
  }
  absl::Status Agree(absl::string_view /*what*/, absl::string_view /*value*/) override {
    return absl::OkStatus();
  }
  absl::Status Together(const absl::Status& mine) override { return mine; }
  absl::Status Barrier(Rank& rank) override { return rank.Barrier(); }
  absl::Status EnqueueBarrier(Rank& rank) override { return rank.EnqueueNodeBarrier(); }
  Rail* rail(int /*local_rank*/) const override { return nullptr; }
  RailTransport transport() const override { return RailTransport::kAuto; }
  absl::StatusOr<std::unique_ptr<ExpertParallel>> MakeExpertParallel(
      const EpConfig& config, const HierarchicalOptions& options) override {
    return ExpertParallel::Create(node(), config, options.intranode);
  }
  absl::StatusOr<std::unique_ptr<MoeLayer>> MakeLayer(
      const MoeLayerConfig& config, const HierarchicalLayerOptions& /*options*/) override {
    return MoeLayer::Create(node(), config);
  }

 private:
  std::shared_ptr<Node> owned_;
};

// Collective. The one place that decides whether a command runs on one node or on several: creates
// the node of this process and, if the launch has several processes, joins them. Whatever goes
// wrong before, in a single process even, belongs into options.prepared. A failure that does not
// end is dealt with as by CreateWatchedNode.
absl::StatusOr<std::unique_ptr<Nodes>> JoinNodes(const Launch& launch, const NodesOptions& options);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_NODES_H_
