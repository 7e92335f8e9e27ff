// Counts of the rows that come to each expert, by every strategy and both paths of a layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/layer/moe_layer_fixture.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/random_step.h"
#include "tools/workload/philox.h"
#include "tools/workload/routing.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kExperts = 9;
constexpr int kWindow = 3;

using Counts = std::vector<int64_t>;

void Add(const std::vector<int32_t>& ids, Counts& counts) {
  for (const int32_t id : ids) {
    if (id >= 0) ++counts[static_cast<size_t>(id)];
  }
}

// Counts on the host.
class HostCount {
 public:
  void Add(const Counts& call) {
    for (size_t e = 0; e < call.size(); ++e) rows_[e] += call[e];
    calls_.push_back(call);
    if (calls_.size() > kWindow) calls_.pop_front();
  }
  void ForgetCalls() { calls_.clear(); }
  void Expect(const absl::StatusOr<ExpertLoads>& loads) const {
    ASSERT_OK(loads.status());
    EXPECT_EQ(loads->rows, rows_);
    Counts window(kExperts, 0);
    for (const Counts& call : calls_) {
      for (size_t e = 0; e < kExperts; ++e) window[e] += call[e];
    }
    EXPECT_EQ(loads->window, window);
  }

 private:
  Counts rows_ = Counts(kExperts, 0);
  std::deque<Counts> calls_;
};

class LoadsTest : public ::testing::TestWithParam<Strategy> {
 protected:
  static EpConfig Config() {
    EpConfig config = {.num_experts = kExperts,
                       .topk = 2,
                       .hidden = 64,
                       .max_tokens_per_rank = 11,
                       .strategy = GetParam()};
    config.tuning = {.blocks = 4, .waves_per_block = 2};
    config.loads = {.count = true, .window = kWindow};
    return config;
  }

  void Make(const EpConfig& config, NodeOptions options = {}) {
    harness_.reset();
    absl::StatusOr<std::unique_ptr<EpHarness>> harness =
        EpHarness::Create(kRanks, config, std::move(options));
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
  }

  // A step whose experts are chosen by popularity, some choices of it dropped.
  StepInput ZipfStep(const std::vector<int>& tokens) {
    StepInput step = RandomStep(rng_, harness_->config(), tokens);
    const uint64_t seed = rng_();
    const RoutingGenerator routing(*ParseRouting("zipf:1.2"), kExperts, seed);
    RoutingGenerator::Scratch scratch;
    for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
      std::vector<int32_t>& ids = step.ranks[rank].topk_idx;
      for (size_t i = 0; i < ids.size(); i += 2) {
        PhiloxStream stream(seed, static_cast<uint32_t>(rank), static_cast<uint32_t>(i), 0);
        routing.Draw(stream, scratch, absl::MakeSpan(ids).subspan(i, 2));
        if (rng_() % 8 == 0) ids[i] = -1;
      }
    }
    return step;
  }
  static Counts CountsOf(const StepInput& step) {
    Counts counts(kExperts, 0);
    for (const StepInput::PerRank& rank : step.ranks) Add(rank.topk_idx, counts);
    return counts;
  }

  ExpertParallel& ep() { return harness_->ep(); }

  std::mt19937_64 rng_{20261127};
  std::unique_ptr<EpHarness> harness_;
};

INSTANTIATE_TEST_SUITE_P(, LoadsTest,
                         ::testing::Values(Strategy::kDirect, Strategy::kHighThroughput,
                                           Strategy::kLowLatency),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

TEST_P(LoadsTest, AreWhatAHostCounts) {
  Make(Config());
  if (HasFatalFailure()) return;
  HostCount want;
  want.Expect(ep().Loads());
  for (const std::vector<int>& tokens :
       {std::vector{11, 4, 7}, {0, 11, 0}, {11, 11, 11}, {0, 0, 0}, {3, 1, 8}, {9, 0, 2}}) {
    const StepInput step = ZipfStep(tokens);
    ASSERT_OK(harness_->Step(step, {Form::kFused, Form::kSplit}));
    want.Add(CountsOf(step));
    want.Expect(ep().Loads());
  }
  ASSERT_OK(harness_->node().Run([&](Rank& rank) { return ep().ResetStatistics(rank); }));
  HostCount().Expect(ep().Loads());
}

TEST_P(LoadsTest, OfReplicasAreTheirLogicalExperts) {
  EpConfig config = Config();
  // Expert 8 on all ranks, 0 on two.
  config.placement = *Placement::Create(
      kExperts, kRanks, {0, 1, 2, 8, Placement::kFreeSlot, 3, 4, 5, 8, 0, 6, 7, 8, -1, -1});
  Make(config);
  if (HasFatalFailure()) return;
  HostCount want;
  for (int i = 0; i < 2; ++i) {
    const StepInput step = ZipfStep({11, 5, 9});
    ASSERT_OK(harness_->Step(step));
    want.Add(CountsOf(step));
  }
  want.Expect(ep().Loads());
}

TEST_P(LoadsTest, AFailureKeepsTheRowsAndEmptiesTheWindow) {
  Make(Config());
  if (HasFatalFailure()) return;
  HostCount want;
  StepInput step = ZipfStep({11, 5, 9});
  ASSERT_OK(harness_->Step(step));
  want.Add(CountsOf(step));
  EXPECT_FALSE(
      harness_->node().Run([](Rank&) { return absl::InternalError("as it happens"); }).ok());
  want.ForgetCalls();
  step = ZipfStep({1, 6, 3});
  ASSERT_OK(harness_->Step(step));
  want.Add(CountsOf(step));
  want.Expect(ep().Loads());
}

TEST_P(LoadsTest, AreReadWhileReplaysRun) {
  Make(Config());
  if (HasFatalFailure()) return;
  constexpr int kReplays = 20;
  const StepInput step = ZipfStep({11, 5, 9});
  ASSERT_OK(harness_->Upload(step));
  const Counts call = CountsOf(step);
  std::atomic<bool> done = false;
  std::thread reader([&] {
    Counts last(kExperts, 0);
    while (!done) {
      const absl::StatusOr<ExpertLoads> loads = ep().Loads();
      ASSERT_OK(loads.status());
      for (size_t e = 0; e < kExperts; ++e) {
        EXPECT_GE(loads->rows[e], last[e]) << "a counter goes back";
        EXPECT_LE(loads->rows[e], (kReplays + 1) * call[e]);
        EXPECT_LE(loads->window[e], kWindow * call[e]);
        if (call[e] > 0) EXPECT_EQ(loads->rows[e] % call[e], 0) << "half a dispatch";
      }
      last = loads->rows;
      std::this_thread::yield();
    }
  });
  const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(
        Graph graph, Graph::Capture(rank, [&] { return harness_->RunStep(rank, Form::kFused); }));
    for (int i = 0; i < kReplays; ++i) OCTET_RETURN_IF_ERROR(graph.Launch(rank));
    return rank.Synchronize();
  });
  done = true;
  reader.join();
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  ASSERT_OK(status);
  HostCount want;
  for (int i = 0; i < kReplays; ++i) want.Add(call);
  want.Expect(ep().Loads());
}

TEST_P(LoadsTest, AreOffByDefault) {
  EpConfig config = Config();
  config.loads = {};
  Make(config);
  if (HasFatalFailure()) return;
  EXPECT_THAT(ep().Loads().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("loads.count")));
  config.loads = {.count = false, .window = 2};
  EXPECT_THAT(Validate(config, kRanks),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loads.window is 2")));
  config.loads = {.count = true, .window = kMaxLoadWindow + 1};
  EXPECT_FALSE(Validate(config, kRanks).ok());
}

// Both paths of a layer, the decode path with few tokens of all ranks and with more.
class LayerLoadsTest : public MoeLayerTest, public ::testing::WithParamInterface<LayerPath> {};

INSTANTIATE_TEST_SUITE_P(, LayerLoadsTest,
                         ::testing::Values(LayerPath::kLaunches, LayerPath::kDecode),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

TEST_P(LayerLoadsTest, AreThoseOfTheRouter) {
  for (const int most : {1, 9}) {
    MoeLayerConfig config = octet::Config();
    config.path = GetParam();
    config.max_tokens_per_rank = most;
    config.loads = {.count = true, .window = kWindow};
    MakeLayer(2, config);
    if (IsSkipped() || HasFatalFailure()) return;
    Counts rows(static_cast<size_t>(config.num_experts), 0);
    Counts window = rows;
    for (uint64_t call = 0; call < kWindow + 1; ++call) {
      const absl::StatusOr<LayerOutput> output =
          Call(*node_, *layer_, Tokens({most, most / 2}, config, call));
      ASSERT_OK(output.status());
      Add(output->topk_idx, rows);
      if (call > 0) Add(output->topk_idx, window);
    }
    const absl::StatusOr<ExpertLoads> loads = layer_->Loads();
    ASSERT_OK(loads.status());
    EXPECT_EQ(loads->rows, rows);
    EXPECT_EQ(loads->window, window);
    layer_.reset();
  }
}

}  // namespace
}  // namespace octet
