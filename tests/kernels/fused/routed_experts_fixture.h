// A fixture for tests of RoutedExperts against the same work as separate calls.
#ifndef OCTET_TESTS_KERNELS_FUSED_ROUTED_EXPERTS_FIXTURE_H_
#define OCTET_TESTS_KERNELS_FUSED_ROUTED_EXPERTS_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/graph.h"
#include "octet/routed_experts.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"
#include "tests/kernels/fused/fused_harness.h"
#include "tests/support/node/node_fixture.h"

namespace octet {

// Ways in which the calls can be made of kernels.
struct Fusions {
  const char* name;
  Fusion dispatch_gemm;
  Fusion gemm_combine;
};
inline void PrintTo(const Fusions& fusions, std::ostream* out) { *out << fusions.name; }

inline constexpr Fusions kFusions[] = {{"none", Fusion::kNone, Fusion::kNone},
                                       {"dispatch_tiles", Fusion::kTiles, Fusion::kNone},
                                       {"combine_tiles", Fusion::kNone, Fusion::kTiles},
                                       {"combine_serial", Fusion::kNone, Fusion::kSerial},
                                       {"combine_epilogue", Fusion::kNone, Fusion::kEpilogue},
                                       {"both_tiles", Fusion::kTiles, Fusion::kTiles}};

// Whether one strategy alone has them.
inline bool NeedHighThroughput(const Fusions& fusions) {
  return fusions.dispatch_gemm != Fusion::kNone || fusions.gemm_combine != Fusion::kNone;
}

inline int NumGpus() {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  return topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
}

inline FusedProblem SmallProblem(int num_ranks) {
  FusedProblem problem;
  problem.num_ranks = num_ranks;
  problem.config.ep.num_experts = 3 * num_ranks;
  problem.config.ep.topk = 3;
  problem.config.ep.hidden = 136;
  problem.config.ep.max_tokens_per_rank = 9;
  problem.config.ep.strategy = Strategy::kHighThroughput;
  problem.config.intermediate = 24;
  return problem;
}

// The same with a second product of FP8 operands.
inline FusedProblem SmallFp8Problem(int num_ranks) {
  FusedProblem problem = SmallProblem(num_ranks);
  problem.config.second_format = GemmFormat::kFp8;
  problem.config.intermediate = 144;
  return problem;
}

class RoutedExpertsTest : public ::testing::Test {
 protected:
  // Skips the test where there are fewer GPUs: `if (IsSkipped()) return;`.
  void Make(const FusedProblem& problem) {
    if (problem.num_ranks > NumGpus()) {
      GTEST_SKIP() << problem.num_ranks << " ranks on " << NumGpus() << " GPUs";
    }
    absl::StatusOr<std::unique_ptr<FusedHarness>> harness = FusedHarness::Create(problem);
    ASSERT_OK(harness.status()) << problem.Text();
    harness_ = *std::move(harness);
  }
  FusedHarness& harness() { return *harness_; }

  void ExpectEqual(const std::vector<StepInput>& inputs,
                   const FusedHarness::Between& between = nullptr) {
    const absl::StatusOr<std::string> difference = harness_->Compare(inputs, between);
    ASSERT_OK(WithSchedule(difference.status())) << harness_->problem().Text();
    EXPECT_EQ(*difference, "") << harness_->problem().Text() << " " << CurrentSchedule();
  }

  // A graph of both calls, replayed with other rows, choices and weights.
  void ExpectReplays(const FusedProblem& problem);

  std::vector<int> FullTokens() {
    return std::vector<int>(static_cast<size_t>(harness_->problem().num_ranks),
                            harness_->problem().config.ep.max_tokens_per_rank);
  }

 private:
  std::unique_ptr<FusedHarness> harness_;
};

inline void RoutedExpertsTest::ExpectReplays(const FusedProblem& problem) {
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  std::vector<StepInput> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(harness().Draw({9, 5}, 0.2));
  const absl::StatusOr<FusedOutputs> want = harness().Separate(inputs);
  ASSERT_OK(want.status());
  FusedOutputs got(inputs.size(), std::vector<FusedOutput>(2));
  const absl::Status status = harness().node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const FusedHarness::CallMemory memory,
                           harness().Upload(rank, inputs[0]));
    OCTET_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(rank, [&] {
                             return harness().EnqueueFused(rank, memory).status();
                           }));
    for (size_t i = 0; i < inputs.size(); ++i) {
      OCTET_RETURN_IF_ERROR(harness().UploadInto(rank, inputs[i], memory));
      OCTET_RETURN_IF_ERROR(graph.Launch(rank));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_ASSIGN_OR_RETURN(got[i][static_cast<size_t>(rank.rank())],
                             harness().Download(rank, memory));
    }
    return absl::OkStatus();
  });
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  ASSERT_OK(status);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const size_t rank : {0, 1}) {
      EXPECT_EQ(got[i][rank].h, (*want)[i][rank].h) << "replay " << i;
      EXPECT_EQ(got[i][rank].y, (*want)[i][rank].y) << "replay " << i;
    }
  }
  ExpectEqual({inputs[2], inputs[1]});
}

class FusionTest : public RoutedExpertsTest, public ::testing::WithParamInterface<Fusions> {
 protected:
  FusedProblem Small(int num_ranks) {
    FusedProblem problem = SmallProblem(num_ranks);
    problem.config.dispatch_gemm = GetParam().dispatch_gemm;
    problem.config.gemm_combine = GetParam().gemm_combine;
    if (GetParam().gemm_combine == Fusion::kEpilogue) {
      problem.config.ep.combine_order = CombineOrder::kFlat;
    }
    return problem;
  }
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_FUSED_ROUTED_EXPERTS_FIXTURE_H_
