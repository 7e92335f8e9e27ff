// Several nodes, for tests of calls over all of them: in one process, each with its own threads, or
// one node in each of several processes.
#ifndef OCTET_TESTS_SUPPORT_SEVERAL_NODES_H_
#define OCTET_TESTS_SUPPORT_SEVERAL_NODES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/hierarchical/hierarchical.h"
#include "kernels/nodes_of_ranks.h"
#include "kernels/reference.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/device_memory.h"
#include "runtime/net/rail.h"
#include "tests/support/local_rail.h"
#include "tools/step/step_buffers.h"
#include "tools/workload/step_input.h"

namespace octet {

// Ranks are numbered over all nodes: "global". A body of a Run gets its rank's global number.
class SeveralNodes {
 public:
  struct Options {
    RailRows rows = RailRows::kAuto;
    absl::Duration timeout = absl::Seconds(60);
  };
  // All nodes in this process, on LocalRails.
  static absl::StatusOr<std::unique_ptr<SeveralNodes>> Create(const NodesOfRanks& shape,
                                                              const EpConfig& config,
                                                              const Options& options);

  // How a node of its own process makes a Run together with the others.
  using RunTogether = std::function<absl::Status(absl::FunctionRef<absl::Status(Rank&)>)>;
  // One of the nodes of several processes. `rails` and `node` must outlive it; options.timeout is
  // that of `node`. The processes make the same calls.
  static absl::StatusOr<std::unique_ptr<SeveralNodes>> Join(
      Node& node, const std::vector<Rail*>& rails, const RunTogether& run,
      const NodesOfRanks& shape, const EpConfig& config, const Options& options);

  const EpConfig& config() const { return nodes_.front().ep->config(); }
  int64_t bytes() const { return rails_.bytes(); }  // that have crossed between nodes
  ExpertParallel& ep(int node) { return *nodes_[static_cast<size_t>(node)].ep; }

  // Calls body(global rank) on all ranks of all nodes at once. Returns the status of each node of
  // this process.
  std::vector<absl::Status> RunAll(const std::function<absl::Status(Rank&, int)>& body);
  absl::Status Run(const std::function<absl::Status(Rank&, int)>& body);

  // The parts of a step. Dispatch is for one rank, inside RunAll or Run.
  absl::Status Upload(const StepInput& input);
  absl::StatusOr<Received> Dispatch(Rank& rank, int global);
  // Dispatch and combine of `input`, that of all ranks. kDataLoss if a result of this process's
  // ranks is not the reference's.
  absl::Status Step(const StepInput& input);

 private:
  struct OneNode {
    int number = 0;
    std::unique_ptr<Node> owned;  // null: somebody else's
    Node* node = nullptr;
    RunTogether run;
    std::unique_ptr<ExpertParallel> ep;
    std::vector<StepBuffers> buffers;
    std::vector<Received> received;
  };
  // The tokens of one rank's batch.
  struct Batch {
    std::vector<uint16_t> x;
    std::vector<int32_t> topk_idx;
    std::vector<float> topk_weights;
    std::vector<uint8_t> fp8;
    std::vector<uint32_t> scales;
    int num_tokens = 0;

    RankInput view() const;
    void Add(const RankInput& token, const EpConfig& intranode, int node);
    void Fill(const EpConfig& intranode, int num_tokens);
  };

  SeveralNodes(const NodesOfRanks& shape, RailRows rows)
      : shape_(shape),
        blocks_(rows == RailRows::kBlocks),
        rails_(shape.num_nodes, shape.ranks_per_node) {}

  // Of a rank of this process.
  OneNode& NodeOf(int global) {
    return nodes_[static_cast<size_t>(global / shape_.ranks_per_node - nodes_.front().number)];
  }
  int GlobalOf(const OneNode& node, const Rank& rank) const {
    return node.number * shape_.ranks_per_node + rank.rank();
  }
  // Adds a node of this process.
  absl::Status Add(OneNode node, const std::vector<Rail*>& rails, const EpConfig& config,
                   const Options& options);
  absl::Status OneByOne(const std::function<absl::Status(Rank&, int)>& body);
  // What rank `local` of `node` passes to its intranode dispatch.
  Batch BatchOf(const StepInput& input, int node, int local) const;
  // Compares what a rank has received; computes its experts' outputs into `out`.
  absl::Status CheckReceived(Rank& rank, int global, const StepInput& input, DeviceMemory& out);
  absl::Status CheckY(const Rank& rank, int global, const StepInput& input);

  const NodesOfRanks shape_;
  const bool blocks_;
  LocalRails rails_;
  std::vector<OneNode> nodes_;  // of this process, ascending
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_SEVERAL_NODES_H_
