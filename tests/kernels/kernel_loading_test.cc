// All kernels are loaded on all ranks before anything waits for a peer: none by its first launch.
// The emulation knows which were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "emulation.h"
#include "octet/dtype.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/routed_experts.h"
#include "octet/trace.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/several_nodes.h"
#include "tests/support/random_step.h"
#include "tools/contenders/contender.h"
#include "tools/measure/probe/ceilings_kernels.h"
#include "tools/measure/probe/latency_test.h"
#include "tools/measure/probe/link_test.h"
#include "tools/measure/step/compute_work.h"

namespace octet {
namespace {

using ::testing::_;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int kRanks = 2;

EpConfig Config(Strategy strategy) {
  EpConfig config;
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 128;
  config.max_tokens_per_rank = 4;
  config.strategy = strategy;
  config.tuning = {.blocks = 3, .waves_per_block = 2};
  return config;
}

class KernelLoadingTest : public NodeTest {
 protected:
  void SetUp() override {
    // A machine that has loaded nothing yet.
    node_.reset();
    emulation::Reconfigure(emulation::CurrentConfig());
  }
  static std::vector<std::pair<std::string, int>> Late() {
    return emulation::TakeKernelsLoadedByLaunches();
  }
};

// A kernel that nobody has asked about.
TEST_F(KernelLoadingTest, LaunchesThatLoadAreSeen) {
  MakeNode(kRanks);
  std::vector<DeviceMemory> clocks(kRanks);
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    DeviceMemory& clock = clocks[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(clock, DeviceMemory::Allocate(sizeof(uint64_t)));
    return OCTET_GPU(LaunchReadClock(clock.as<uint64_t>(), rank.stream()));
  }));
  EXPECT_THAT(Late(), SizeIs(kRanks));
  EXPECT_THAT(Late(), IsEmpty());
}

class StrategyLoadingTest : public KernelLoadingTest,
                            public ::testing::WithParamInterface<std::pair<const char*, EpConfig>> {
};

TEST_P(StrategyLoadingTest, EveryKernelIsLoadedAtCreation) {
  const EpConfig& config = GetParam().second;
  auto harness = EpHarness::Create(kRanks, config);
  ASSERT_OK(harness.status());
  std::mt19937_64 rng(3);
  const EpConfig& chosen = (*harness)->ep().config();
  for (const Form form : {Form::kSeparateExpert, Form::kSplit}) {
    ASSERT_OK((*harness)->Step(RandomStep(rng, chosen, {4, 3}), {form}));
  }
  EXPECT_THAT(Late(), IsEmpty());
}

TEST_P(StrategyLoadingTest, EveryTracedKernelIsLoadedAtCreation) {
  MakeNode(kRanks);
  constexpr int kBlocks = 8;
  constexpr int kEvents = 256;
  const auto trace = TraceCollector::Create(*node_, kBlocks, kEvents);
  ASSERT_OK(trace.status());
  auto ep = ExpertParallel::Create(*node_, GetParam().second, {.trace = trace->get()});
  ASSERT_OK(ep.status());
  const EpConfig& config = (*ep)->config();
  const size_t bytes = static_cast<size_t>(config.max_rows(kRanks)) *
                       static_cast<size_t>(config.hidden) * InfoOf(config.dtype).bytes;
  std::vector<DeviceMemory> expert_out(kRanks);
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    DeviceMemory& mine = expert_out[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(mine, DeviceMemory::Allocate(bytes));
    return absl::OkStatus();
  }));
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, (*ep)->Dispatch(rank, {}));
    const DeviceMemory& mine = expert_out[static_cast<size_t>(rank.rank())];
    return (*ep)->Combine(rank, received.handle, {.expert_out = mine.as<void>()});
  }));
  EXPECT_THAT(Late(), IsEmpty());
}

EpConfig Changed(Strategy strategy, const std::function<void(EpConfig&)>& change) {
  EpConfig config = Config(strategy);
  change(config);
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    All, StrategyLoadingTest,
    ::testing::Values(
        std::pair("Direct", Config(Strategy::kDirect)),
        std::pair("DirectFp16",
                  Changed(Strategy::kDirect, [](EpConfig& c) { c.dtype = DType::kFloat16; })),
        std::pair("HighThroughput", Config(Strategy::kHighThroughput)),
        std::pair("HighThroughputFlat",
                  Changed(Strategy::kHighThroughput,
                          [](EpConfig& c) { c.combine_order = CombineOrder::kFlat; })),
        std::pair("HighThroughputBulk",
                  Changed(Strategy::kHighThroughput,
                          [](EpConfig& c) { c.tuning.row_copies = RowCopies::kBulk; })),
        std::pair("LowLatency", Config(Strategy::kLowLatency)),
        std::pair("LowLatencyFlatFp16", Changed(Strategy::kLowLatency,
                                                [](EpConfig& c) {
                                                  c.dtype = DType::kFloat16;
                                                  c.combine_order = CombineOrder::kFlat;
                                                })),
        std::pair("LowLatencyQuantized",
                  Changed(Strategy::kLowLatency,
                          [](EpConfig& c) { c.dispatch_format = DispatchFormat::kQuantizedFp8; })),
        std::pair("LowLatencyMasks", Changed(Strategy::kLowLatency,
                                             [](EpConfig& c) {
                                               c.low_latency.failure_policy = FailurePolicy::kMask;
                                             }))),
    [](const auto& info) { return std::string(info.param.first); });

// Late are only those with which the test's own rails wait.
TEST_F(KernelLoadingTest, SeveralNodes) {
  EpConfig config = Config(Strategy::kHighThroughput);
  config.tuning = {};
  config.max_blocks = 1;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    config.dtype = dtype;
    for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
      auto nodes = SeveralNodes::Create({.num_nodes = 2, .ranks_per_node = 1}, config,
                                        {.rows = rows, .chunk_tokens = 2});
      ASSERT_OK(nodes.status());
      std::mt19937_64 rng(3);
      ASSERT_OK((*nodes)->Step(RandomStep(rng, config, {4, 3})));
    }
  }
  EXPECT_THAT(Late(), Each(Pair(HasSubstr("ExchangeKernel"), _)));
}

// All zeros, and one token on each rank.
TEST_F(KernelLoadingTest, RoutedExpertsOfFp8) {
  MakeNode(kRanks);
  RoutedExpertsConfig config = {.ep = Config(Strategy::kHighThroughput), .intermediate = 128};
  config.ep.topk = 1;
  config.ep.dispatch_format = DispatchFormat::kFp8;
  config.second_format = GemmFormat::kFp8;
  const auto experts = RoutedExperts::Create(*node_, config);
  ASSERT_OK(experts.status());
  std::vector<DeviceMemory> memory(kRanks);
  constexpr size_t kBytes = 64 << 10;  // two matrices of [256][128] bytes
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    DeviceMemory& mine = memory[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(mine, DeviceMemory::Allocate(2 * kBytes));
    return OCTET_GPU(hipMemset(mine.as<void>(), 0, 2 * kBytes));
  }));
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    char* zeros = memory[static_cast<size_t>(rank.rank())].as<char>();
    char* out = zeros + kBytes;
    OCTET_ASSIGN_OR_RETURN(
        const FusedReceived received,
        (*experts)->DispatchGemm(rank,
                                 {.dispatch = {.x = zeros,
                                               .topk_idx = reinterpret_cast<const int32_t*>(zeros),
                                               .topk_weights = reinterpret_cast<float*>(zeros),
                                               .num_tokens = 1,
                                               .high_throughput = {.x_scales = zeros}},
                                  .b = zeros,
                                  .b_scales = zeros,
                                  .out = out}));
    return (*experts)->GemmCombine(
        rank, received, {.a = received.h, .b = zeros, .b_scales = zeros, .y = out + kBytes / 2});
  }));
  EXPECT_THAT(Late(), IsEmpty());
}

TEST_F(KernelLoadingTest, Contenders) {
  MakeNode(kRanks);
  for (const std::unique_ptr<Contender>& contender : MakeContenders(*node_)) {
    if (contender->is_strategy() || !contender->Available().ok()) continue;
    SCOPED_TRACE(contender->name());
    const auto ep = contender->Create(Config(Strategy::kDirect), {});
    ASSERT_OK(ep.status());
    std::vector<DeviceMemory> memory(kRanks);
    ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(memory[static_cast<size_t>(rank.rank())],
                             DeviceMemory::Allocate(4096));
      return OCTET_GPU(hipMemset(memory[static_cast<size_t>(rank.rank())].as<void>(), 0, 4096));
    }));
    ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      char* base = memory[static_cast<size_t>(rank.rank())].as<char>();
      OCTET_ASSIGN_OR_RETURN(
          const Received received,
          (*ep)->Dispatch(rank, {.x = base,
                                 .topk_idx = reinterpret_cast<const int32_t*>(base),
                                 .topk_weights = reinterpret_cast<const float*>(base),
                                 .num_tokens = 1}));
      return (*ep)->Combine(rank, received.handle, {.expert_out = received.x, .y = base + 2048});
    }));
    EXPECT_THAT(Late(), IsEmpty());
  }
}

TEST_F(KernelLoadingTest, Ceilings) {
  MakeNode(kRanks);
  const auto links = LinkTest::Create(*node_, 1 << 16);
  ASSERT_OK(links.status());
  for (const auto& [mover, name] : EnumTable(Mover{})) {
    ASSERT_OK((*links)->Verify({.mover = mover, .blocks = 2, .row_bytes = 256})) << name;
  }
  const auto latency = LatencyTest::Create(*node_);
  ASSERT_OK(latency.status());
  ASSERT_OK((*latency)->EmptyLaunch().status());
  ASSERT_OK((*latency)->FlagRoundTrip(0, 1).status());
  ASSERT_OK((*latency)->NodeBarrier().status());
  EXPECT_THAT(Late(), IsEmpty());
}

TEST_F(KernelLoadingTest, ComputeWork) {
  MakeNode(kRanks);
  ASSERT_OK(ComputeWork::Create(*node_, 1.0, 1).status());
  EXPECT_THAT(Late(), IsEmpty());
}

}  // namespace
}  // namespace octet
