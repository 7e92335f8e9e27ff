#include "kernels/ep/base/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "octet/ep_config.h"
#include "octet/topology.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr platform::LaunchLimits kNoLimits = {.blocks = std::numeric_limits<int>::max(),
                                              .waves = std::numeric_limits<int>::max()};
constexpr int kMostThreads = 512;

// A plan for a GPU of 10 compute units with waves of 32 lanes.
class LaunchPlanTest : public ::testing::Test {
 protected:
  LaunchPlan Plan(const platform::LaunchLimits& limits = kNoLimits) {
    GpuInfo gpu;
    gpu.num_compute_units = 10;
    gpu.wave_size = 32;
    return {&config_, gpu, limits};
  }

  Tuning& tuning() { return config_.tuning; }

  EpConfig config_ = {.strategy = Strategy::kDirect};
};

size_t NoSharedMemory(int /*waves*/) { return 0; }

void ExpectRefused(const absl::Status& status, absl::string_view words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST_F(LaunchPlanTest, CallBytesAreThoseOfAllChoices) {
  config_.topk = 4;
  config_.hidden = 256;
  config_.max_tokens_per_rank = 16;
  EXPECT_EQ(CallBytes(config_), 16 * 4 * 512);
  config_.topk = kMaxTopk;
  config_.hidden = kMaxHidden;
  config_.max_tokens_per_rank = kMaxTokensPerRank;
  EXPECT_EQ(CallBytes(config_), int64_t{1} << 38);
}

TEST_F(LaunchPlanTest, DefaultLimitsAllowABlockThatSendsAndOneThatReceives) {
  int before = 2;
  for (int bits = 0; bits < 40; ++bits) {
    const platform::LaunchLimits limits = platform::DefaultLaunchLimits(int64_t{1} << bits);
    EXPECT_GE(limits.blocks, before) << "more work has no fewer blocks";
    EXPECT_GE(limits.waves, 1);
    before = limits.blocks;
  }
}

TEST_F(LaunchPlanTest, FillsTheGpu) {
  LaunchPlan plan = Plan();
  ASSERT_TRUE(plan.ChooseBlock(kMostThreads, [](int waves) { return size_t{100} * waves; }).ok());
  ASSERT_TRUE(plan.ChooseBlocks(/*per_unit=*/2, /*resident_per_unit=*/2).ok());
  ASSERT_TRUE(plan.ChooseSendBlocks().ok());
  EXPECT_EQ(tuning(), (Tuning{.blocks = 20, .send_blocks = 10, .waves_per_block = 16}));
  EXPECT_EQ(plan.shape().blocks, 20);
  EXPECT_EQ(plan.shape().threads, kMostThreads);
  EXPECT_EQ(plan.shape().shared_bytes, 1600U);
}

TEST_F(LaunchPlanTest, StaysWithinTheLimits) {
  LaunchPlan plan = Plan({.blocks = 4, .waves = 2});
  ASSERT_TRUE(plan.ChooseBlock(kMostThreads, NoSharedMemory).ok());
  ASSERT_TRUE(plan.ChooseBlocks(2, 2).ok());
  EXPECT_EQ(tuning(), (Tuning{.blocks = 4, .waves_per_block = 2}));
}

TEST_F(LaunchPlanTest, LimitsYieldToWhatTheCallerHasSet) {
  tuning() = {.send_blocks = 6, .send_waves = 3, .combine_send_waves = 5};
  LaunchPlan plan = Plan({.blocks = 4, .waves = 2});
  ASSERT_TRUE(plan.ChooseBlock(kMostThreads, NoSharedMemory).ok());
  ASSERT_TRUE(plan.ChooseBlocks(2, 2).ok());
  ASSERT_TRUE(plan.ChooseSendBlocks().ok());
  EXPECT_EQ(tuning().waves_per_block, 5);
  EXPECT_EQ(tuning().blocks, 7);
  EXPECT_EQ(tuning().send_blocks, 6);
}

TEST_F(LaunchPlanTest, KeepsWhatTheCallerHasSet) {
  tuning() = {.blocks = 9, .send_blocks = 2, .waves_per_block = 3};
  const Tuning set = tuning();
  LaunchPlan plan = Plan({.blocks = 4, .waves = 2});
  ASSERT_TRUE(plan.ChooseBlock(kMostThreads, NoSharedMemory).ok());
  ASSERT_TRUE(plan.ChooseBlocks(2, 2).ok());
  ASSERT_TRUE(plan.ChooseSendBlocks().ok());
  EXPECT_EQ(tuning(), set);
  EXPECT_EQ(plan.shape().blocks, 9);
  EXPECT_EQ(plan.shape().threads, 96);
}

TEST_F(LaunchPlanTest, MaxBlocksIsALimit) {
  config_.max_blocks = 7;
  LaunchPlan plan = Plan();
  ASSERT_TRUE(plan.ChooseBlock(kMostThreads, NoSharedMemory).ok());
  ASSERT_TRUE(plan.ChooseBlocks(2, 2).ok());
  EXPECT_EQ(tuning().blocks, 7);
}

TEST_F(LaunchPlanTest, RefusesTooManyWaves) {
  tuning().waves_per_block = 17;
  ExpectRefused(Plan().ChooseBlock(kMostThreads, NoSharedMemory),
                "waves_per_block is 17; with waves of 32 lanes it can be 16 at most");
}

TEST_F(LaunchPlanTest, RefusesBlocksThatCannotBeResident) {
  tuning().blocks = 21;
  LaunchPlan plan = Plan();
  ASSERT_TRUE(plan.ChooseBlock(kMostThreads, NoSharedMemory).ok());
  ExpectRefused(plan.ChooseBlocks(2, 2), "direct: 21 blocks of 512 threads");
}

TEST_F(LaunchPlanTest, RefusesALaunchWithoutReceivers) {
  for (const Tuning& bad : {Tuning{.blocks = 1}, Tuning{.blocks = 4, .send_blocks = 4}}) {
    tuning() = bad;
    LaunchPlan plan = Plan();
    ASSERT_TRUE(plan.ChooseBlock(kMostThreads, NoSharedMemory).ok());
    ASSERT_TRUE(plan.ChooseBlocks(2, 2).ok());
    ExpectRefused(plan.ChooseSendBlocks(), bad.blocks == 1 ? "blocks is 1" : "send_blocks is 4");
  }
}

TEST_F(LaunchPlanTest, SendBlocksFollowThePhase) {
  tuning() = {.blocks = 5, .send_blocks = 2};
  LaunchPlan plan = Plan();
  ASSERT_TRUE(plan.ChooseBlock(kMostThreads, NoSharedMemory).ok());
  ASSERT_TRUE(plan.ChooseBlocks(1, 1).ok());
  EXPECT_EQ(plan.SendBlocks(Phases::kBoth), 2);
  EXPECT_EQ(plan.SendBlocks(Phases::kSend), 5);
  EXPECT_EQ(plan.SendBlocks(Phases::kReceive), 0);
}

}  // namespace
}  // namespace octet
