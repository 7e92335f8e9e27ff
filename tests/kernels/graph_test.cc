// Steps captured into graphs: launched again and again, with other inputs and nothing on the host
// between, they do what the calls would have done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/ep_harness.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/strategy_variants.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr size_t kReplays = OCTET_TEST_REPLAYS;
constexpr size_t kInputs = 8;

EpConfig Config(Strategy strategy, int num_ranks) {
  EpConfig config;
  config.strategy = strategy;
  config.num_experts = 3 * num_ranks;
  config.topk = 3;
  config.hidden = 136;
  config.max_tokens_per_rank = 9;
  // Enough for several blocks of both kinds; the emulation takes its time for more.
  config.tuning = {.blocks = 6, .waves_per_block = 4};
  return config;
}

// A rank's memory for the steps of a graph: what they read and write, which stays where it is, and
// all inputs and outputs.
struct Steps {
  std::vector<StepBuffers> inputs;
  std::vector<StepBuffers> captured;  // as many as are in the graph
};

class GraphTest : public ::testing::Test {
 protected:
  // Skips the test where there are fewer GPUs: `if (IsSkipped()) return;`.
  void Make(const EpConfig& config, int num_ranks) {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (num_ranks > gpus) GTEST_SKIP() << num_ranks << " ranks on " << gpus << " GPUs";
    absl::StatusOr<std::unique_ptr<EpHarness>> harness = EpHarness::Create(num_ranks, config);
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
    config_ = harness_->ep().config();
    tokens_ = RandomTokens(rng_, config_, num_ranks);
    tokens_[0] = config_.max_tokens_per_rank;
    for (size_t i = 0; i < kInputs; ++i) {
      inputs_.push_back(RandomStep(rng_, config_, tokens_, 0.2));
    }
    ASSERT_OK(harness_->Upload(inputs_[0]));
    steps_.resize(static_cast<size_t>(num_ranks));
    graphs_.resize(static_cast<size_t>(num_ranks));
  }

  // Captures `steps` steps. Skips the test on a platform that does not capture.
  void Capture(size_t steps, absl::FunctionRef<absl::Status(Rank&, Steps&)> enqueue) {
    ASSERT_OK(harness_->node().Run([&](Rank& rank) { return Allocate(rank, steps); }));
    const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      OCTET_ASSIGN_OR_RETURN(Graph graph,
                             Graph::Capture(rank, [&] { return enqueue(rank, steps_[r]); }));
      graphs_[r] = std::make_unique<Graph>(std::move(graph));
      return absl::OkStatus();
    });
    if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
    ASSERT_OK(status);
  }

  // Captures `before` and a dispatch, for its Status.
  absl::Status CaptureDispatches(absl::FunctionRef<absl::Status(Rank&)> before) {
    return harness_->node().Run([&](Rank& rank) {
      const auto enqueue = [&]() -> absl::Status {
        OCTET_RETURN_IF_ERROR(before(rank));
        return harness_->ep().Dispatch(rank, harness_->dispatch_args(rank.rank())).status();
      };
      return Graph::Capture(rank, enqueue).status();
    });
  }

  // One step. With `poison`, everything that it delivers is NaN before; else only y.
  absl::Status EnqueueStep(Rank& rank, const StepBuffers& step, bool poison) {
    const StepExecutor executor(harness_->ep(), {.fuse_experts = true});
    OCTET_RETURN_IF_ERROR(poison ? executor.Poison(rank, step, config_.max_rows(rank.num_ranks()))
                                 : step.Poison(rank, 0));
    Received received;
    return executor.Enqueue(rank, step, received);
  }

  // Launches until there were `steps` steps, which take all inputs in turn. `check_all`: the host
  // waits after all inputs have had their turn, and compares every y; otherwise only at the end,
  // with the last y of each input.
  absl::Status Replay(size_t steps, bool check_all) {
    return harness_->node().Run([&](Rank& rank) -> absl::Status {
      Steps& mine = steps_[static_cast<size_t>(rank.rank())];
      for (size_t step = 0; step < steps; step += mine.captured.size()) {
        for (size_t i = 0; i < mine.captured.size(); ++i) {
          OCTET_RETURN_IF_ERROR(
              CopyStep(rank, mine.captured[i], mine.inputs[(step + i) % kInputs], true));
        }
        OCTET_RETURN_IF_ERROR(graphs_[static_cast<size_t>(rank.rank())]->Launch(rank));
        for (size_t i = 0; i < mine.captured.size(); ++i) {
          OCTET_RETURN_IF_ERROR(
              CopyStep(rank, mine.inputs[(step + i) % kInputs], mine.captured[i], false));
        }
        const size_t done = step + mine.captured.size();
        if (done < steps && (!check_all || done % kInputs != 0)) continue;
        OCTET_RETURN_IF_ERROR(rank.Synchronize());
        for (size_t i = 0; i < kInputs; ++i) OCTET_RETURN_IF_ERROR(CheckY(rank, i, done));
      }
      return absl::OkStatus();
    });
  }

  EpHarness& harness() { return *harness_; }
  std::vector<StepInput>& inputs() { return inputs_; }
  std::vector<Steps>& steps() { return steps_; }

 private:
  absl::Status Allocate(Rank& rank, size_t captured) {
    Steps& mine = steps_[static_cast<size_t>(rank.rank())];
    for (size_t i = 0; i < kInputs + captured; ++i) {
      OCTET_ASSIGN_OR_RETURN(StepBuffers step, StepBuffers::Create(rank, config_));
      OCTET_RETURN_IF_ERROR(harness_->Upload(rank, inputs_[i % kInputs], step));
      (i < kInputs ? mine.inputs : mine.captured).push_back(std::move(step));
    }
    return absl::OkStatus();
  }

  // What a step reads, or what it has written, in stream order.
  static absl::Status CopyStep(Rank& rank, const StepBuffers& to, const StepBuffers& from,
                               bool inputs) {
    const auto copy = [&](const DeviceMemory& into, const DeviceMemory& source) {
      return OCTET_GPU(hipMemcpyAsync(into.as<void>(), source.as<void>(), source.bytes(),
                                      hipMemcpyDeviceToDevice, rank.stream()));
    };
    if (!inputs) return copy(to.y, from.y);
    OCTET_RETURN_IF_ERROR(copy(to.x, from.x));
    OCTET_RETURN_IF_ERROR(copy(to.topk_idx, from.topk_idx));
    return copy(to.topk_weights, from.topk_weights);
  }

  absl::Status CheckY(Rank& rank, size_t input, size_t done) {
    const Steps& mine = steps_[static_cast<size_t>(rank.rank())];
    absl::Status status = harness_->CheckY(rank, inputs_[input], mine.inputs[input].y.as<void>());
    if (!absl::IsDataLoss(status)) return status;
    return absl::DataLossError(
        absl::StrCat("input ", input, ", at the latest in step ", done, ", ", status.message()));
  }

  std::mt19937_64 rng_{11};
  EpConfig config_;
  std::vector<int> tokens_;
  std::vector<StepInput> inputs_;
  std::unique_ptr<EpHarness> harness_;
  std::vector<Steps> steps_;                    // by rank
  std::vector<std::unique_ptr<Graph>> graphs_;  // by rank
};

// Strategy, ranks.
class GraphStrategyTest : public GraphTest,
                          public ::testing::WithParamInterface<std::tuple<Strategy, int>> {
 protected:
  void MakeAndCapture(bool poison = true) {
    const auto [strategy, num_ranks] = GetParam();
    Make(Config(strategy, num_ranks), num_ranks);
    if (HasFatalFailure() || IsSkipped()) return;
    Capture(1, [this, poison](Rank& rank, Steps& mine) {
      return EnqueueStep(rank, mine.captured[0], poison);
    });
  }
};

TEST_P(GraphStrategyTest, EveryReplayIsRight) {
  MakeAndCapture();
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(Replay(kReplays, /*check_all=*/true));
  EXPECT_OK(Replay(kReplays, /*check_all=*/false));
}

class GraphMixTest : public GraphStrategyTest {};

TEST_P(GraphMixTest, CallsAndReplaysMix) {
  MakeAndCapture();
  if (HasFatalFailure() || IsSkipped()) return;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_OK(harness().Step(inputs()[i], {Form::kFused, Form::kSplit}));
    EXPECT_OK(Replay(kInputs + i, /*check_all=*/false));
  }
}

// What a kernel finds comes back from the Run, and then the graphs are as good as before. Nobody
// else may write what peers may still be sending to a rank whose dispatch has failed.
TEST_P(GraphMixTest, ReplaysAfterAFailure) {
  MakeAndCapture(/*poison=*/false);
  if (HasFatalFailure() || IsSkipped()) return;
  const DeviceMemory& ids = steps()[0].inputs[1].topk_idx;
  std::vector<int32_t> bad = inputs()[1].ranks[0].topk_idx;
  bad[0] = 1000;
  ASSERT_OK(ToDevice(ids, bad));
  EXPECT_THAT(Replay(kInputs, /*check_all=*/false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 0: topk_idx of token 0, k 0 is 1000")));
  ASSERT_OK(ToDevice(ids, inputs()[1].ranks[0].topk_idx));
  EXPECT_OK(Replay(kInputs, /*check_all=*/false));
}

std::string CaseName(const ::testing::TestParamInfo<std::tuple<Strategy, int>>& info) {
  const auto [strategy, num_ranks] = info.param;
  const std::vector<std::string> numbers = {"OneRank", "TwoRanks", "ThreeRanks", "FourRanks"};
  return absl::StrCat(StrategyTestName(strategy), numbers[static_cast<size_t>(num_ranks - 1)]);
}
INSTANTIATE_TEST_SUITE_P(All, GraphStrategyTest,
                         ::testing::Combine(::testing::ValuesIn(AllStrategies()),
                                            ::testing::Values(1, 2, 3, 4)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(All, GraphMixTest,
                         ::testing::Combine(::testing::ValuesIn(AllStrategies()),
                                            ::testing::Values(2)),
                         CaseName);

// Two steps in a graph, both dispatched before the first is received, and so with their combines.
TEST_F(GraphTest, TwoStepsOnTheirWayAtOnce) {
  Make(Config(Strategy::kLowLatency, 2), 2);
  if (HasFatalFailure() || IsSkipped()) return;
  Capture(2, [this](Rank& rank, Steps& mine) -> absl::Status {
    std::vector<DispatchHandle> handles;
    std::vector<Received> received;
    ExpertParallel& ep = harness().ep();
    for (const StepBuffers& step : mine.captured) {
      OCTET_RETURN_IF_ERROR(step.Poison(rank, 0));
      OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle,
                             ep.DispatchSend(rank, step.dispatch_args()));
      handles.push_back(handle);
    }
    for (const DispatchHandle& handle : handles) {
      OCTET_ASSIGN_OR_RETURN(const Received one, ep.DispatchReceive(rank, handle));
      received.push_back(one);
    }
    for (size_t i : {0, 1}) {
      OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep, rank, handles[i],
                                              mine.captured[i].fused_combine_args(received[i])));
    }
    for (size_t i : {0, 1}) {
      OCTET_RETURN_IF_ERROR(ScaledCombineReceive(ep, rank, handles[i],
                                                 mine.captured[i].fused_combine_args(received[i])));
    }
    return absl::OkStatus();
  });
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(Replay(kReplays, /*check_all=*/false));
}

TEST_F(GraphTest, HostTotalsCannotBeCaptured) {
  EpConfig config = Config(Strategy::kHighThroughput, 1);
  config.high_throughput.host_totals = true;
  Make(config, 1);
  if (HasFatalFailure() || IsSkipped()) return;
  const absl::Status status = CaptureDispatches([](Rank&) { return absl::OkStatus(); });
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("host_totals cannot be captured")));
  EXPECT_OK(harness().Step(inputs()[0]));
}

TEST_F(GraphTest, AnUnfinishedCaptureIsAnError) {
  Make(Config(Strategy::kDirect, 1), 1);
  if (HasFatalFailure() || IsSkipped()) return;
  const auto run = [&](absl::FunctionRef<absl::Status(Rank&)> then) {
    return harness().node().Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_GPU_ERROR(
          hipStreamBeginCapture(rank.stream(), hipStreamCaptureModeThreadLocal));
      return then(rank);
    });
  };
  const absl::Status left = run([](Rank&) { return absl::OkStatus(); });
  if (absl::IsUnimplemented(left)) GTEST_SKIP() << left;
  EXPECT_THAT(left,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has begun a capture of the rank's stream and not ended it")));
  EXPECT_THAT(run([](Rank& rank) { return rank.Synchronize(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is captured")));
  EXPECT_OK(harness().Step(inputs()[0]));
}

// A rank that fails in the capture takes the others with it.
TEST_F(GraphTest, ARankFailsWhileTheOthersCapture) {
  Make(Config(Strategy::kDirect, 2), 2);
  if (HasFatalFailure() || IsSkipped()) return;
  const absl::Status status = CaptureDispatches([](Rank& rank) {
    return rank.rank() == 1 ? absl::AbortedError("had enough") : absl::OkStatus();
  });
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 1: had enough")));
  EXPECT_OK(harness().Step(inputs()[0]));
}

}  // namespace
}  // namespace octet
