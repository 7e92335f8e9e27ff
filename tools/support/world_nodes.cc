// HowToJoin in the program that is linked to MPI.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "octet/hierarchical.h"
#include "octet/hierarchical_layer.h"
#include "octet/moe_layer.h"
#include "octet/world.h"
#include "runtime/base/status_macros.h"
#include "runtime/memory/device_memory.h"
#include "runtime/net/rails/rail.h"
#include "tools/support/launch.h"
#include "tools/support/nodes.h"
#include "tools/support/watched_node.h"

namespace octet {
namespace {

// Between two collective calls a node may load a model's layer or write a large file, one node
// slower than the others. A node that has died is noticed earlier.
constexpr absl::Duration kArrivalTimeout = absl::Minutes(10);

// What a barrier exchanges with each node.
constexpr size_t kBarrierBytes = 16;

class WorldNodes : public Nodes {
 public:
  WorldNodes(std::shared_ptr<WatchedFailures> failures, std::unique_ptr<World> world)
      : Nodes(world->node()),
        failures_(std::move(failures)),
        world_(std::move(world)),
        barriers_(static_cast<size_t>(node().num_ranks())) {}

  // Comes first. Collective.
  absl::Status Init();

  int num_nodes() const override { return world_->num_nodes(); }
  int node_index() const override { return world_->node_index(); }
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body) override {
    return world_->Run(body);
  }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes) override {
    return world_->AllGather(bytes);
  }
  absl::Status Agree(absl::string_view what, absl::string_view value) override {
    return world_->Agree(what, value);
  }
  absl::Status Together(const absl::Status& mine) override { return world_->Together(mine); }
  absl::Status Barrier(Rank& rank) override;
  absl::Status EnqueueBarrier(Rank& rank) override;
  Rail* rail(int local_rank) const override { return &world_->rail(local_rank); }
  RailTransport transport() const override { return world_->transport(); }
  absl::StatusOr<std::unique_ptr<ExpertParallel>> MakeExpertParallel(
      const EpConfig& config, const HierarchicalOptions& options) override {
    return MakeHierarchical(*world_, config, options);
  }
  absl::StatusOr<std::unique_ptr<MoeLayer>> MakeLayer(
      const MoeLayerConfig& config, const HierarchicalLayerOptions& options) override {
    return MakeHierarchicalLayer(*world_, config, options);
  }

 private:
  // Enqueues an exchange of a few bytes with the rank's peers on the other nodes.
  absl::Status Meet(Rank& rank);

  const std::shared_ptr<WatchedFailures> failures_;
  const std::unique_ptr<World> world_;
  std::vector<DeviceMemory> barriers_;  // by rank: what is sent, then what is received
};

absl::Status WorldNodes::Init() {
  const size_t bytes = kBarrierBytes * static_cast<size_t>(num_nodes());
  return Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    OCTET_ASSIGN_OR_RETURN(barriers_[r], DeviceMemory::Allocate(2 * bytes));
    return absl::OkStatus();
  });
}

absl::Status WorldNodes::Meet(Rank& rank) {
  char* const sent = barriers_[static_cast<size_t>(rank.rank())].as<char>();
  char* const received = sent + kBarrierBytes * static_cast<size_t>(num_nodes());
  std::vector<RailPart> parts;
  for (size_t n = 0; n < static_cast<size_t>(num_nodes()); ++n) {
    parts.push_back({.send = sent + n * kBarrierBytes,
                     .send_bytes = kBarrierBytes,
                     .recv = received + n * kBarrierBytes,
                     .recv_bytes = kBarrierBytes});
  }
  return rail(rank.rank())->Exchange(rank, parts);
}

// A rank has met all ranks of the other nodes when all ranks of its own node have met their peers.
absl::Status WorldNodes::Barrier(Rank& rank) {
  OCTET_RETURN_IF_ERROR(rank.Barrier());
  OCTET_RETURN_IF_ERROR(Meet(rank));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  return rank.Barrier();
}

absl::Status WorldNodes::EnqueueBarrier(Rank& rank) {
  OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
  OCTET_RETURN_IF_ERROR(Meet(rank));
  return rank.EnqueueNodeBarrier();
}

absl::StatusOr<std::unique_ptr<Nodes>> Join(const Launch& launch, const NodesOptions& options) {
  const auto failures = std::make_shared<WatchedFailures>();
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<World> world,
                         World::Create({.node = {.num_ranks = options.num_ranks,
                                                 .timeout = options.timeout,
                                                 .on_failure = OnWatchedFailure(failures)},
                                        .arrival_timeout = kArrivalTimeout,
                                        .transport = options.transport,
                                        .prepared = options.prepared}));
  failures->node = world->node().Share();
  if (world->num_nodes() != launch.num_processes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the launcher has started ", launch.num_processes, " processes, but MPI joins ",
        world->num_nodes(), ": the launcher and the MPI that octet_mpi is linked to must match"));
  }
  OCTET_RETURN_IF_ERROR(world->Agree("the command line", launch.arguments));
  const size_t bytes = kBarrierBytes * static_cast<size_t>(world->num_nodes());
  absl::Status reserved;
  for (int r = 0; r < world->node().num_ranks(); ++r) {
    reserved.Update(world->rail(r).Reserve(bytes, bytes));
  }
  auto nodes = std::make_unique<WorldNodes>(failures, std::move(world));
  OCTET_RETURN_IF_ERROR(nodes->Together(reserved));
  OCTET_RETURN_IF_ERROR(nodes->Init());
  return nodes;
}

}  // namespace

absl::StatusOr<JoinFunction> HowToJoin(const Launch& /*launch*/, char** /*argv*/) { return Join; }

}  // namespace octet
