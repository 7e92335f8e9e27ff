// What kAuto comes to: by the rules, by what a configuration asks for, and by a table; and that
// Create takes it.
#include "kernels/ep/ep_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ep/strategy_registry.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EpConfig Good(int max_tokens) {
  EpConfig config;
  config.num_experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens_per_rank = max_tokens;
  return config;
}

Strategy Chosen(const EpConfig& config, int num_ranks = 8) {
  EXPECT_TRUE(Validate(config, num_ranks).ok()) << Validate(config, num_ranks);
  const EpConfig chosen = EpPlan::ByRules(config, num_ranks);
  EXPECT_TRUE(Validate(chosen, num_ranks).ok()) << Validate(chosen, num_ranks);
  return chosen.strategy;
}

TEST(EpPlan, ByTokens) {
  for (const int ranks : {1, 2, 4, 8, 16}) {
    for (const int tokens : {1, 16, 64, 128, 512, 1024}) {
      EXPECT_EQ(Chosen(Good(tokens), ranks), Strategy::kLowLatency) << tokens;
    }
    for (const int tokens : {1025, 4096, 65536}) {
      EXPECT_EQ(Chosen(Good(tokens), ranks), Strategy::kHighThroughput) << tokens;
    }
  }
}

TEST(EpPlan, ByWhatOnlyOneStrategyHas) {
  const auto with = [](int tokens, const std::function<void(EpConfig&)>& change) {
    EpConfig config = Good(tokens);
    change(config);
    return Chosen(config);
  };
  for (const int tokens : {1, 128, 1024}) {
    for (const std::function<void(EpConfig&)>& change :
         {std::function<void(EpConfig&)>([](EpConfig& c) { c.output = Output::kDeduplicated; }),
          {[](EpConfig& c) { c.high_throughput.duplicates = Duplicates::kIndex; }},
          {[](EpConfig& c) { c.high_throughput.host_totals = true; }},
          {[](EpConfig& c) { c.high_throughput.kept_layouts = 2; }},
          {[](EpConfig& c) { c.high_throughput.expert_alignment = 128; }},
          {[](EpConfig& c) { c.combine_method = CombineMethod::kPull; }},
          {[](EpConfig& c) { c.dispatch_format = DispatchFormat::kFp8; }},
          {[](EpConfig& c) { c.max_blocks = 1; }},
          {[](EpConfig& c) { c.tuning.blocks = 1; }},
          {[](EpConfig& c) { c.tuning.blocks = c.tuning.send_blocks = 4; }}}) {
      EXPECT_EQ(with(tokens, change), Strategy::kHighThroughput) << tokens;
    }
    for (const std::function<void(EpConfig&)>& change :
         {std::function<void(EpConfig&)>([](EpConfig& c) { c.output = Output::kExpertMajor; }),
          {[](EpConfig& c) { c.output = Output::kRankMajor; }},
          {[](EpConfig& c) { c.low_latency.failure_policy = FailurePolicy::kMask; }},
          // Which has too few blocks, and says so.
          {[](EpConfig& c) {
            c.low_latency.failure_policy = FailurePolicy::kMask;
            c.max_blocks = 1;
          }},
          {[](EpConfig& c) { c.low_latency.statistics = true; }},
          {[](EpConfig& c) { c.dispatch_format = DispatchFormat::kQuantizedFp8; }}}) {
      EXPECT_EQ(with(tokens, change), Strategy::kLowLatency) << tokens;
    }
    EXPECT_EQ(with(tokens, [](EpConfig& c) { c.variant.slots = Slots::kAtomic; }),
              Strategy::kDirect);
    EXPECT_EQ(with(tokens, [](EpConfig& c) { c.variant.flags = Flags::kSource; }),
              Strategy::kDirect);
  }
}

TEST(EpPlan, NeverWhatIsRefusedOrTakesTooMuch) {
  EpConfig config = Good(64);
  config.num_experts = 2048;
  EXPECT_EQ(Chosen(config), Strategy::kDirect);
  config.max_tokens_per_rank = 65;
  EXPECT_EQ(Chosen(config), Strategy::kHighThroughput);
  config = Good(16);
  config.hidden = kMaxLowLatencyHidden + 8;
  EXPECT_EQ(Chosen(config), Strategy::kDirect);
  // Room for two times 16 · 512 · 32 rows of 32 KiB.
  config = Good(512);
  config.topk = 32;
  config.num_experts = 512;
  config.hidden = kMaxLowLatencyHidden;
  EXPECT_EQ(Chosen(config, 16), Strategy::kHighThroughput);
  EXPECT_EQ(Chosen(config, 4), Strategy::kLowLatency);
  config.output = Output::kExpertMajor;  // nobody else
  EXPECT_EQ(Chosen(config, 16), Strategy::kLowLatency);
}

TEST(EpPlan, TheOrderThatIsAskedForStays) {
  EpConfig config = Good(64);
  EXPECT_EQ(EpPlan::ByRules(config, 8).combine_order, CombineOrder::kPerRank);
  config.combine_order = CombineOrder::kFlat;
  EXPECT_EQ(EpPlan::ByRules(config, 8).strategy, Strategy::kLowLatency);
  EXPECT_EQ(EpPlan::ByRules(config, 8).combine_order, CombineOrder::kFlat);
  config = Good(16);
  config.num_experts = 2048;
  EXPECT_EQ(EpPlan::ByRules(config, 8).combine_order, CombineOrder::kFlat);
  config.combine_order = CombineOrder::kPerRank;  // not direct then
  EXPECT_EQ(EpPlan::ByRules(config, 8).strategy, Strategy::kHighThroughput);
}

TEST(EpPlan, WithinAStrategy) {
  EpConfig config = Good(256);
  EXPECT_EQ(EpPlan::ByRules(config, 8).fp8_form, WithNativeFp8(Fp8Form::kNative));
  config.strategy = Strategy::kDirect;
  EXPECT_EQ(EpPlan::ByRules(config, 8).strategy, Strategy::kDirect);
  EXPECT_EQ(EpPlan::ByRules(config, 8).combine_order, CombineOrder::kFlat);
  config.strategy = Strategy::kHighThroughput;
  EXPECT_EQ(EpPlan::ByRules(config, 8).combine_order, CombineOrder::kPerRank);
  EXPECT_EQ(EpPlan::ByRules(config, 8).combine_method, CombineMethod::kPush);
  config.output = Output::kDeduplicated;  // as much again as is received would be too much
  EXPECT_EQ(EpPlan::ByRules(config, 8).combine_method, CombineMethod::kPull);
}

// ---- with a table

TuningEntry Choice(const Topology& topology, int num_ranks, const EpConfig& config,
                   Strategy chosen) {
  return {.key = TuningKeyOf(topology, num_ranks, config), .chosen = chosen};
}

TEST(EpPlan, WhatWasMeasuredComesFirst) {
  Topology here;
  here.platform = "nvidia";
  here.gpus.resize(1);
  here.gpus[0].name = "a GPU";
  Topology elsewhere = here;
  elsewhere.gpus[0].name = "another";
  const auto chosen = [&](const EpConfig& config, const TuningTable& table) {
    return EpPlan::Resolve(config, 8, here, table)->config.strategy;
  };
  TuningTable table;
  table.Set(Choice(here, 8, Good(128), Strategy::kDirect));
  table.Set(Choice(elsewhere, 8, Good(128), Strategy::kHighThroughput));
  EXPECT_EQ(chosen(Good(128), table), Strategy::kDirect);
  EXPECT_EQ(chosen(Good(255), table), Strategy::kDirect);
  EXPECT_EQ(chosen(Good(256), table), Strategy::kLowLatency);
  EXPECT_EQ(EpPlan::Resolve(Good(128), 4, here, table)->config.strategy, Strategy::kLowLatency);
  EXPECT_EQ(EpPlan::Resolve(Good(128), 8, elsewhere, table)->config.strategy,
            Strategy::kHighThroughput);
  EXPECT_THAT(PossibleStrategies(Good(128), 8, table),
              ElementsAre(Strategy::kLowLatency, Strategy::kDirect, Strategy::kHighThroughput));
  // Not for who has named a strategy, and not where it cannot do what is asked for.
  EpConfig config = Good(128);
  config.strategy = Strategy::kLowLatency;
  EXPECT_EQ(chosen(config, table), Strategy::kLowLatency);
  EXPECT_THAT(PossibleStrategies(config, 8, table), ElementsAre(Strategy::kLowLatency));
  config = Good(128);
  config.output = Output::kRankMajor;
  EXPECT_EQ(chosen(config, table), Strategy::kLowLatency);
  EXPECT_THAT(PossibleStrategies(config, 8, table), ElementsAre(Strategy::kLowLatency));
}

TEST(EpPlan, LaunchShapesOfOneStrategyAreNotForTheOthers) {
  unsetenv("OCTET_TUNING");
  const auto shipped = TuningTable::Default();
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  Topology h200;
  h200.platform = "nvidia";
  h200.gpus.resize(4);
  h200.gpus[0].name = "NVIDIA H200";
  EpConfig config = EpPlan::Resolve(Good(256), 4, h200, **shipped)->config;
  EXPECT_EQ(config.strategy, Strategy::kLowLatency);
  EXPECT_FALSE((*shipped)->Find(h200, 4, config).has_value());
  config.strategy = Strategy::kDirect;
  EXPECT_TRUE((*shipped)->Find(h200, 4, config).has_value());
}

class EpPlanTest : public NodeTest {
 protected:
  void TearDown() override {
    unsetenv("OCTET_TUNING");
    NodeTest::TearDown();
  }
  static EpConfig Small() {
    EpConfig config = Good(16);
    config.num_experts = 8;
    config.topk = 2;
    config.hidden = 64;
    return config;
  }
  absl::StatusOr<EpConfig> Created(const EpConfig& config,
                                   const ExpertParallelOptions& options = {}) {
    const auto ep = ExpertParallel::Create(*node_, config, options);
    if (!ep.ok()) return ep.status();
    return (*ep)->config();
  }
};

TEST_F(EpPlanTest, CreateTakesIt) {
  MakeNode(1);
  if (IsSkipped()) return;
  setenv("OCTET_TUNING", "none", 1);
  absl::StatusOr<EpConfig> created = Created(Small());
  ASSERT_OK(created.status());
  EXPECT_EQ(created->strategy, Strategy::kLowLatency);
  EXPECT_EQ(created->combine_order, CombineOrder::kPerRank);

  TuningTable table;
  table.Set(Choice(node_->topology(), 1, Small(), Strategy::kDirect));
  EpConfig direct = Small();
  direct.strategy = Strategy::kDirect;
  TuningEntry launch = {
      .key = TuningKeyOf(node_->topology(), 1, direct),
      .tuning = {.blocks = 4, .send_blocks = 1, .waves_per_block = 2, .row_parts = 5}};
  table.Set(launch);
  const std::string path = testing::TempDir() + "octet_ep_plan_test.json";
  std::ofstream(path) << table.ToJson();
  setenv("OCTET_TUNING", path.c_str(), 1);
  created = Created(Small());
  ASSERT_OK(created.status());
  EXPECT_EQ(created->strategy, Strategy::kDirect);
  EXPECT_EQ(created->tuning, launch.tuning);
  // Room for it in a heap of the caller's.
  const absl::StatusOr<HeapSize> bytes = ExpertParallel::HeapBytes(Small(), 1);
  ASSERT_OK(bytes.status());
  EXPECT_GE(bytes->uncached, ExpertParallel::HeapBytes(direct, 1)->uncached);
  auto heap = SymmetricHeap::Create(*node_, *bytes);
  ASSERT_OK(heap.status());
  EXPECT_OK(Created(Small(), {.heap = heap->get()}).status());
  // Who does not want what was measured gets the rules.
  created = Created(Small(), {.use_measured_tuning = false});
  ASSERT_OK(created.status());
  EXPECT_EQ(created->strategy, Strategy::kLowLatency);
}

// Whatever kAuto comes to, the same calls are legal.
TEST_F(EpPlanTest, OneContractWhateverTheTableSays) {
  MakeNode(2);
  if (IsSkipped()) return;
  for (const Strategy chosen : AllStrategies()) {
    SCOPED_TRACE(EnumName(chosen));
    TuningTable table;
    table.Set(Choice(node_->topology(), 2, Small(), chosen));
    const std::string path = testing::TempDir() + "octet_ep_plan_test.json";
    std::ofstream(path) << table.ToJson();
    setenv("OCTET_TUNING", path.c_str(), 1);
    const auto ep = ExpertParallel::Create(*node_, Small());
    ASSERT_OK(ep.status());
    ASSERT_EQ((*ep)->config().strategy, chosen);
    std::vector<DeviceMemory> memory(2);
    std::vector<Received> first(2);
    EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(memory[static_cast<size_t>(rank.rank())],
                             DeviceMemory::Allocate(1 << 16));
      return OCTET_GPU(hipMemset(memory[static_cast<size_t>(rank.rank())].as<void>(), 0, 1 << 16));
    }));
    EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      char* base = memory[static_cast<size_t>(rank.rank())].as<char>();
      // Token 0 chooses experts 0 and 0 where all is zero: so one that chooses -1 and 0.
      OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(base, 0xff, 4, rank.stream()));
      DispatchArgs args = {
          .x = base + 4096, .topk_idx = reinterpret_cast<const int32_t*>(base), .num_tokens = 1};
      const CombineArgs combine = {
          .expert_out = base + 8192, .y = base + 4096, .bias = base + 2048};
      // No weights, and a bias.
      OCTET_ASSIGN_OR_RETURN(Received received, (*ep)->Dispatch(rank, args));
      OCTET_RETURN_IF_ERROR((*ep)->Combine(rank, received.handle, combine));
      // One dispatch at a time.
      OCTET_ASSIGN_OR_RETURN(const DispatchHandle sent, (*ep)->DispatchSend(rank, args));
      EXPECT_THAT((*ep)->DispatchSend(rank, args).status(),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("has been sent but not received")));
      OCTET_RETURN_IF_ERROR((*ep)->DispatchReceive(rank, sent).status());
      OCTET_RETURN_IF_ERROR((*ep)->Dispatch(rank, args).status());
      EXPECT_THAT((*ep)->Combine(rank, sent, combine),
                  StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the handle is of")));
      // Only one strategy accepts this argument.
      args.high_throughput.scatter_idx = args.topk_idx;
      EXPECT_THAT((*ep)->Dispatch(rank, args).status(),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name high_throughput")));
      args.high_throughput.scatter_idx = nullptr;
      args.high_throughput.cached = &received.handle;
      EXPECT_THAT((*ep)->Dispatch(rank, args).status(),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name high_throughput")));
      return absl::OkStatus();
    }));
  }
}

// A configuration that only one strategy can do: all of its calls.
TEST_F(EpPlanTest, TheWholeContractOfTheOnlyStrategyThatCan) {
  MakeNode(1);
  if (IsSkipped()) return;
  setenv("OCTET_TUNING", "none", 1);
  EpConfig config = Small();
  config.high_throughput.kept_layouts = 2;
  auto ep = ExpertParallel::Create(*node_, config);
  ASSERT_OK(ep.status());
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, (*ep)->Dispatch(rank, {}));
    return (*ep)->Dispatch(rank, {.high_throughput = {.cached = &received.handle}}).status();
  }));
  config = Small();
  config.output = Output::kExpertMajor;
  ep = ExpertParallel::Create(*node_, config);
  ASSERT_OK(ep.status());
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle first, (*ep)->DispatchSend(rank, {}));
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle second, (*ep)->DispatchSend(rank, {}));
    OCTET_RETURN_IF_ERROR((*ep)->DispatchReceive(rank, first).status());
    return (*ep)->DispatchReceive(rank, second).status();
  }));
}

}  // namespace
}  // namespace octet
