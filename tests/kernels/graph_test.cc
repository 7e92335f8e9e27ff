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
#include "kernels/ep_internals.h"
#include "kernels/reference.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "octet/node.h"
#include "runtime/device_memory.h"
#include "runtime/gpu_status.h"
#include "runtime/status_macros.h"
#include "tests/support/ep_harness.h"
#include "tests/support/host_copy.h"
#include "tests/support/node_fixture.h"

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
  struct Step {
    DeviceMemory x, topk_idx, topk_weights, y;
  };
  std::vector<Step> inputs;
  std::vector<Step> captured;  // as many as are in the graph
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
    ASSERT_OK(harness_->Upload(inputs_[0]));  // the experts' factors, the same for all
    steps_.resize(static_cast<size_t>(num_ranks));
    wanted_.resize(static_cast<size_t>(num_ranks));
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

  // One step: everything that it delivers is NaN before.
  absl::Status EnqueuePoisonedStep(Rank& rank, const Steps::Step& step) {
    const int rows = rank.num_ranks() * config_.max_tokens_per_rank *
                     std::min(config_.topk, config_.num_local_experts(rank.num_ranks()));
    OCTET_RETURN_IF_ERROR(EpInternals::Poison(harness_->ep(), rank, rows));
    return EnqueueStep(rank, step);
  }
  absl::Status EnqueueStep(Rank& rank, const Steps::Step& step) {
    OCTET_RETURN_IF_ERROR(PoisonY(rank, step));
    OCTET_ASSIGN_OR_RETURN(const Received received,
                           harness_->ep().Dispatch(rank, DispatchArgsOf(rank, step)));
    return harness_->ep().Combine(rank, received.handle, CombineArgsOf(rank, step, received));
  }

  static absl::Status PoisonY(Rank& rank, const Steps::Step& step) {
    return OCTET_GPU(hipMemsetAsync(step.y.as<void>(), 0xff, step.y.bytes(), rank.stream()));
  }
  DispatchArgs DispatchArgsOf(const Rank& rank, const Steps::Step& step) const {
    return {.x = step.x.as<void>(),
            .topk_idx = step.topk_idx.as<int32_t>(),
            .topk_weights = step.topk_weights.as<float>(),
            .num_tokens = tokens_[static_cast<size_t>(rank.rank())]};
  }
  CombineArgs CombineArgsOf(const Rank& rank, const Steps::Step& step,
                            const Received& received) const {
    CombineArgs args = harness_->combine_args(rank.rank());
    args.expert_out = received.x;
    args.y = step.y.as<void>();
    return args;
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
  static absl::StatusOr<Steps::Step> AllocateStep(const StepInput::PerRank& like, size_t y_bytes) {
    Steps::Step step;
    const auto bytes = [](const auto& values) {
      return std::max<size_t>(values.size() * sizeof(values[0]), 16);
    };
    OCTET_ASSIGN_OR_RETURN(step.x, DeviceMemory::Allocate(bytes(like.x)));
    OCTET_ASSIGN_OR_RETURN(step.topk_idx, DeviceMemory::Allocate(bytes(like.topk_idx)));
    OCTET_ASSIGN_OR_RETURN(step.topk_weights, DeviceMemory::Allocate(bytes(like.topk_weights)));
    OCTET_ASSIGN_OR_RETURN(step.y, DeviceMemory::Allocate(std::max<size_t>(y_bytes, 16)));
    return step;
  }

  absl::Status Allocate(Rank& rank, size_t captured) {
    const auto r = static_cast<size_t>(rank.rank());
    for (size_t i = 0; i < kInputs + captured; ++i) {
      const StepInput::PerRank& input = inputs_[i % kInputs].ranks[r];
      OCTET_ASSIGN_OR_RETURN(Steps::Step step,
                             AllocateStep(input, input.x.size() * sizeof(uint16_t)));
      OCTET_RETURN_IF_ERROR(ToDevice(step.x, input.x));
      OCTET_RETURN_IF_ERROR(ToDevice(step.topk_idx, input.topk_idx));
      OCTET_RETURN_IF_ERROR(ToDevice(step.topk_weights, input.topk_weights));
      (i < kInputs ? steps_[r].inputs : steps_[r].captured).push_back(std::move(step));
    }
    for (const StepInput& input : inputs_) {
      wanted_[r].push_back(
          ReferenceCombine(config_, rank.num_ranks(), input.views()[r], input.expert_scale));
    }
    return absl::OkStatus();
  }

  // What a step reads, or what it has written, in stream order.
  static absl::Status CopyStep(Rank& rank, const Steps::Step& to, const Steps::Step& from,
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
    const auto r = static_cast<size_t>(rank.rank());
    const std::vector<uint16_t>& want = wanted_[r][input];
    std::vector<uint16_t> y(want.size());
    const DeviceMemory& memory = steps_[r].inputs[input].y;
    if (y.empty()) return absl::OkStatus();
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(y.data(), memory.as<void>(),
                                             y.size() * sizeof(uint16_t), hipMemcpyDeviceToHost,
                                             rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    if (SameBits(config_.dtype, y, want)) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("y of input ", input, " differs, at the latest in step ", done));
  }

  std::mt19937_64 rng_{11};
  EpConfig config_;
  std::vector<int> tokens_;
  std::vector<StepInput> inputs_;
  std::unique_ptr<EpHarness> harness_;
  std::vector<Steps> steps_;                                // by rank
  std::vector<std::vector<std::vector<uint16_t>>> wanted_;  // y by rank and input
  std::vector<std::unique_ptr<Graph>> graphs_;              // by rank
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
      return poison ? EnqueuePoisonedStep(rank, mine.captured[0])
                    : EnqueueStep(rank, mine.captured[0]);
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
  const std::string name = strategy == Strategy::kDirect           ? "Direct"
                           : strategy == Strategy::kHighThroughput ? "HighThroughput"
                                                                   : "LowLatency";
  const std::vector<std::string> numbers = {"OneRank", "TwoRanks", "ThreeRanks", "FourRanks"};
  return absl::StrCat(name, numbers[static_cast<size_t>(num_ranks - 1)]);
}
const auto kStrategies =
    ::testing::Values(Strategy::kDirect, Strategy::kHighThroughput, Strategy::kLowLatency);
INSTANTIATE_TEST_SUITE_P(All, GraphStrategyTest,
                         ::testing::Combine(kStrategies, ::testing::Values(1, 2, 3, 4)), CaseName);
INSTANTIATE_TEST_SUITE_P(All, GraphMixTest, ::testing::Combine(kStrategies, ::testing::Values(2)),
                         CaseName);

// Two steps in a graph, both dispatched before the first is received, and so with their combines.
TEST_F(GraphTest, TwoStepsOnTheirWayAtOnce) {
  Make(Config(Strategy::kLowLatency, 2), 2);
  if (HasFatalFailure() || IsSkipped()) return;
  Capture(2, [this](Rank& rank, Steps& mine) -> absl::Status {
    std::vector<DispatchHandle> handles;
    std::vector<Received> received;
    ExpertParallel& ep = harness().ep();
    for (const Steps::Step& step : mine.captured) {
      OCTET_RETURN_IF_ERROR(PoisonY(rank, step));
      OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle,
                             ep.DispatchSend(rank, DispatchArgsOf(rank, step)));
      handles.push_back(handle);
    }
    for (const DispatchHandle& handle : handles) {
      OCTET_ASSIGN_OR_RETURN(const Received one, ep.DispatchReceive(rank, handle));
      received.push_back(one);
    }
    for (size_t i : {0, 1}) {
      OCTET_RETURN_IF_ERROR(
          ep.CombineSend(rank, handles[i], CombineArgsOf(rank, mine.captured[i], received[i])));
    }
    for (size_t i : {0, 1}) {
      OCTET_RETURN_IF_ERROR(
          ep.CombineReceive(rank, handles[i], CombineArgsOf(rank, mine.captured[i], received[i])));
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
  EXPECT_THAT(left, StatusIs(absl::StatusCode::kFailedPrecondition,
                             HasSubstr("has not ended the capture")));
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
