// RoutedExperts over several nodes in tests, against what the experts of all nodes make on a single
// rank and the reference's sums of it.
#ifndef OCTET_TESTS_KERNELS_NODES_EXPERTS_HARNESS_H_
#define OCTET_TESTS_KERNELS_NODES_EXPERTS_HARNESS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/routed_experts.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tools/workload/step_input.h"

namespace octet {

struct ExpertsProblem {
  RoutedExpertsConfig config;  // over all nodes
  RailRows rows = RailRows::kAuto;
  int chunk_tokens = 0;
  bool bias = false;  // of both products and of y
  uint32_t seed = 1;  // of the weights

  std::string Text() const;
};

// A shape of everything that experts over several nodes take. Alike wherever it is drawn.
ExpertsProblem DrawExpertsProblem(std::mt19937_64& rng, const NodesOfRanks& shape);

class ExpertsHarness {
 public:
  // `nodes` must outlive it.
  static absl::StatusOr<std::unique_ptr<ExpertsHarness>> Create(const JoinedNodes& nodes,
                                                                const ExpertsProblem& problem);
  const EpConfig& ep() const { return experts_.front()->config().ep; }
  RoutedExperts& experts(int global) { return *experts_[nodes_.IndexOf(global)]; }
  // Random rows, choices and weights of all ranks.
  StepInput Draw(std::mt19937_64& rng, const std::vector<int>& tokens, double drop = 0) const;

  // Makes one call of each of `inputs` in one Run. kDataLoss, naming the rank and the call, if a y
  // of this process's ranks is not the reference's.
  absl::Status Check(const std::vector<StepInput>& inputs);

  // On a rank's thread inside Run: both calls, with the rank's part of `input`.
  absl::Status Call(Rank& rank, int global, const StepInput& input);

 private:
  struct Weights {
    DeviceMemory b1, b1_scales, bias1, b2, b2_scales, bias2, y_bias;
  };
  struct HostWeights {
    std::vector<uint8_t> b1, b1_scales, b2, b2_scales;
    std::vector<float> bias1, bias2;
    std::vector<uint16_t> y_bias;

    // Adds the experts of another rank.
    void Append(const HostWeights& more);
  };
  struct CallMemory {
    DeviceMemory x, scales, topk_idx, topk_weights, h, y;
    int num_tokens = 0;
  };

  ExpertsHarness(const JoinedNodes& nodes, const ExpertsProblem& problem)
      : nodes_(nodes), problem_(problem) {}

  HostWeights WeightsOf(int global) const;
  static absl::StatusOr<Weights> Upload(const HostWeights& host);
  static absl::StatusOr<CallMemory> Upload(const RoutedExpertsConfig& config, int num_ranks,
                                           const StepInput::PerRank& mine);
  static absl::Status Enqueue(Rank& rank, RoutedExperts& experts, const Weights& weights,
                              const CallMemory& memory);
  // Makes the experts of all nodes on a single rank.
  absl::Status MakeOracle();
  // Returns [T][K][H], what the experts make of each choice of a rank.
  absl::StatusOr<std::vector<uint16_t>> Outputs(const StepInput::PerRank& mine);
  absl::StatusOr<std::vector<uint16_t>> ReferenceY(const StepInput& input, int global);

  const JoinedNodes& nodes_;
  const ExpertsProblem problem_;
  std::vector<std::unique_ptr<RoutedExperts>> experts_;  // by node of this process
  std::vector<Weights> weights_;                         // by global rank
  std::vector<std::vector<CallMemory>> calls_;           // by global rank
  std::unique_ptr<Node> oracle_node_;
  std::unique_ptr<RoutedExperts> oracle_;
  std::vector<Weights> oracle_weights_;  // one
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_NODES_EXPERTS_HARNESS_H_
