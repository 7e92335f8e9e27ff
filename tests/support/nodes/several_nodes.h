// Dispatch and combine over several nodes, in tests, against the reference.
#ifndef OCTET_TESTS_SUPPORT_NODES_SEVERAL_NODES_H_
#define OCTET_TESTS_SUPPORT_NODES_SEVERAL_NODES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/oracle/reference.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tools/step/step_buffers.h"
#include "tools/workload/step_input.h"

namespace octet {

// Ranks are numbered as in JoinedNodes.
class SeveralNodes {
 public:
  struct Options {
    RailRows rows = RailRows::kAuto;
    int chunk_tokens = 0;
    absl::Duration timeout = absl::Seconds(60);
  };
  // All nodes in this process.
  static absl::StatusOr<std::unique_ptr<SeveralNodes>> Create(const NodesOfRanks& shape,
                                                              const EpConfig& config,
                                                              const Options& options);
  // On the nodes of `joined`, whose timeout stays.
  static absl::StatusOr<std::unique_ptr<SeveralNodes>> Create(std::unique_ptr<JoinedNodes> joined,
                                                              const EpConfig& config,
                                                              const Options& options);

  const EpConfig& config() const { return calls_.front().ep->config(); }
  int64_t bytes() const { return joined_->bytes(); }  // that have crossed between nodes
  ExpertParallel& ep(int node) { return *calls_[static_cast<size_t>(node)].ep; }

  // As JoinedNodes.
  std::vector<absl::Status> RunAll(const JoinedNodes::Body& body) { return joined_->RunAll(body); }
  absl::Status Run(const JoinedNodes::Body& body) { return joined_->Run(body); }

  // The parts of a step. Dispatch and Combine are for one rank, inside RunAll or Run.
  absl::Status Upload(const StepInput& input);
  absl::StatusOr<Received> Dispatch(Rank& rank, int global);
  // Takes part in the first exchange only of a dispatch of so many chunks.
  struct Chunks {
    int rows = 0;    // of each, from each node
    int chunks = 0;  // that there would be
  };
  absl::Status SendFirstChunk(Rank& rank, int global, const Chunks& chunks);
  // Combines what the rank has dispatched last.
  absl::Status Combine(Rank& rank, int global, const void* expert_out);
  // Dispatch and combine of `input`, that of all ranks. kDataLoss if a result of this process's
  // ranks is not the reference's.
  absl::Status Step(const StepInput& input);

 private:
  // Of one node of this process.
  struct OfNode {
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
    // Adds a token of another batch.
    void Append(const RankInput& token, const EpConfig& intranode);
    void Fill(const EpConfig& intranode, int num_tokens);
  };

  SeveralNodes(std::unique_ptr<JoinedNodes> joined, const Options& options)
      : joined_(std::move(joined)),
        shape_(joined_->shape()),
        blocks_(options.rows == RailRows::kBlocks),
        chunk_tokens_(options.chunk_tokens) {}

  // Of a rank of this process.
  OfNode& NodeOf(int global) { return calls_[joined_->IndexOf(global)]; }
  absl::Status Add(const JoinedNodes::OneNode& node, const EpConfig& config,
                   const Options& options);
  // What rank `local` of `node` passes to its intranode dispatch.
  Batch BatchOf(const StepInput& input, int node, int local) const;
  // Compares what a rank has received; computes its experts' outputs into `out`.
  absl::Status CheckReceived(Rank& rank, int global, const StepInput& input, DeviceMemory& out);
  absl::Status CheckY(const Rank& rank, int global, const StepInput& input);

  const std::unique_ptr<JoinedNodes> joined_;
  const NodesOfRanks shape_;
  const bool blocks_;
  const int chunk_tokens_;
  std::vector<OfNode> calls_;  // by node of this process
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NODES_SEVERAL_NODES_H_
