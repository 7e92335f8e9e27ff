// Calls of RoutedExperts in tests beside what they must equal to the bit: Dispatch, GroupedGemm,
// with second_format kFp8 a RowQuantizer, GroupedGemm and Combine as separate calls on another
// ExpertParallel.
#ifndef OCTET_TESTS_KERNELS_FUSED_FUSED_HARNESS_H_
#define OCTET_TESTS_KERNELS_FUSED_FUSED_HARNESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/types/row_quantizer.h"
#include "octet/grouped_gemm.h"
#include "octet/node.h"
#include "octet/routed_experts.h"
#include "octet/trace.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/gemm_problem.h"
#include "tools/workload/step_input.h"

namespace octet {

struct FusedProblem {
  int num_ranks = 1;
  RoutedExpertsConfig config;
  bool bias = false;  // of both products and of y
  // Blocks and events of a track that the fused calls are traced with; no blocks: not traced.
  int traced_blocks = 0;
  int traced_events = 4096;
  uint32_t seed = 1;

  std::string Text() const;
};

// What a call has written on one rank.
struct FusedOutput {
  std::vector<uint16_t> h;  // [max_rows][I]; kUnwritten where nothing was written
  std::vector<uint16_t> y;  // [T][H]
  // Of the last call of a Run, else empty.
  std::vector<int32_t> expert_offsets;
  std::vector<int32_t> sources;
};
using FusedOutputs = std::vector<std::vector<FusedOutput>>;  // by call, by rank

// Says where two sets of outputs differ first; empty if they are the same.
std::string FirstDifference(const FusedOutputs& got, const FusedOutputs& want);

class FusedHarness {
 public:
  // A rank's memory for a call.
  struct CallMemory {
    DeviceMemory x, scales, topk_idx, topk_weights, h, y;
    int num_tokens = 0;
  };
  // A rank's weights, on the host and on the GPU.
  struct Weights {
    GemmProblem first, second;  // b, b_scales and bias alone
    std::vector<uint16_t> y_bias;
    DeviceMemory b1, b1_scales, bias1, b2, b2_scales, bias2, y_bias_on_gpu;
  };

  static absl::StatusOr<std::unique_ptr<FusedHarness>> Create(const FusedProblem& problem);

  // Random rows, choices and weights of a call, as many tokens as `tokens` says for each rank.
  StepInput Draw(const std::vector<int>& tokens, double drop = 0);
  // 0 to M tokens for each rank.
  std::vector<int> DrawTokens();

  // All calls in one Run with nothing on the host between them; `between` is called after each
  // GemmCombine with the number of the call and its memory.
  using Between = std::function<absl::Status(Rank&, size_t, const CallMemory&)>;
  absl::StatusOr<FusedOutputs> Fused(const std::vector<StepInput>& inputs,
                                     const Between& between = nullptr);
  absl::StatusOr<FusedOutputs> Separate(const std::vector<StepInput>& inputs);
  // Runs both. Empty, or the first difference.
  absl::StatusOr<std::string> Compare(const std::vector<StepInput>& inputs,
                                      const Between& between = nullptr);

  Node& node() { return *node_; }
  RoutedExperts& experts() { return *experts_; }
  TraceCollector& trace() { return *trace_; }
  const FusedProblem& problem() const { return problem_; }  // with the experts' resolved config
  const Weights& weights(int rank) const { return ranks_[static_cast<size_t>(rank)].weights; }

  // On the rank's thread.
  absl::StatusOr<CallMemory> Upload(const Rank& rank, const StepInput& input) const;
  absl::Status UploadInto(const Rank& rank, const StepInput& input, const CallMemory& memory) const;
  absl::StatusOr<FusedOutput> Download(const Rank& rank, const CallMemory& memory) const;
  DispatchGemmArgs dispatch_args(const Rank& rank, const CallMemory& memory) const;
  GemmCombineArgs combine_args(const Rank& rank, const CallMemory& memory) const;
  // One DispatchGemm and its GemmCombine.
  absl::StatusOr<Received> EnqueueFused(Rank& rank, const CallMemory& memory);

 private:
  struct RankState {
    Weights weights;
    std::unique_ptr<GroupedGemm> first, second;
    DeviceMemory second_out;
    std::optional<RowQuantizer> quantizer;  // with second_format kFp8
    DeviceMemory quantized, quantized_scales;
    std::vector<CallMemory> calls;
  };
  using Enqueue = std::function<absl::StatusOr<Received>(Rank&, size_t, const CallMemory&)>;

  absl::Status InitRank(const Rank& rank);
  absl::Status InitQuantizer(const GroupedGemmConfig& second, RankState& mine) const;
  absl::StatusOr<Received> EnqueueSeparate(Rank& rank, const CallMemory& memory);
  absl::StatusOr<FusedOutputs> RunCalls(const std::vector<StepInput>& inputs,
                                        const Enqueue& enqueue);

  FusedProblem problem_;
  uint64_t draws_ = 0;
  std::unique_ptr<Node> node_;
  std::unique_ptr<TraceCollector> trace_;
  std::unique_ptr<RoutedExperts> experts_;
  std::unique_ptr<ExpertParallel> separate_;
  std::vector<RankState> ranks_;
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_FUSED_FUSED_HARNESS_H_
