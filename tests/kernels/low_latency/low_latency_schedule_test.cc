// low_latency with ranks, blocks or waves of emulated GPUs late in turn, one or two steps on their
// way: nobody overtakes anybody by more than credits allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "octet/expert_parallel.h"
#include "tests/platform/emulation/emulation_fixture.h"
#include "tests/support/ep_harness.h"

namespace octet {
namespace {

constexpr int kSeeds = 4;

class LowLatencyScheduleTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Tests behind it in this program need a machine without a schedule.
  void TearDown() override { emulation::Reconfigure(initial_); }

 private:
  const emulation::Config initial_ = emulation::CurrentConfig();
};

TEST_P(LowLatencyScheduleTest, StepsAreRight) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const auto draw = [&rng](int low, int high) {
      return low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1));
    };
    emulation::Config machine;
    machine.devices = draw(2, 4);
    machine.workers = 1;
    ASSERT_TRUE(emulation::ParseSchedule(absl::StrCat(GetParam(), ":", seed), &machine));
    emulation::Reconfigure(machine);
    EpConfig config;
    config.strategy = Strategy::kLowLatency;
    config.num_experts = machine.devices * draw(1, 3);
    config.topk = draw(1, std::min(config.num_experts, 4));
    config.hidden = 8 * draw(1, 24);
    config.max_tokens_per_rank = draw(1, 6);
    config.output =
        static_cast<Output>(draw(0, 1) == 0 ? Output::kPackedExperts : Output::kRankMajor);
    config.combine_order = draw(0, 1) == 0 ? CombineOrder::kFlat : CombineOrder::kPerRank;
    const int blocks = draw(2, 4);
    config.tuning = {.blocks = blocks,
                     .send_blocks = draw(1, blocks - 1),
                     .waves_per_block = draw(1, 2),
                     .row_parts = draw(1, 2)};
    if (seed % 2 == 0) {
      config.hidden = 16 * draw(1, 12);
      config.dispatch_format = DispatchFormat::kQuantizedFp8;
      config.scale_group = 64 * draw(1, 2);
      config.scale_format = static_cast<ScaleFormat>(draw(0, 2));
    }
    const auto harness = EpHarness::Create(machine.devices, config);
    ASSERT_TRUE(harness.ok()) << harness.status();
    std::vector<StepInput> inputs;
    for (int i = 0; i < 6; ++i) {
      inputs.push_back(RandomStep(rng, config, RandomTokens(rng, config, machine.devices), 0.2));
    }
    const std::vector<Form> forms = {Form::kSplit, draw(0, 1) == 0 ? Form::kSplit : Form::kFused};
    const absl::Status status = (*harness)->Steps(inputs, forms);
    EXPECT_TRUE(status.ok()) << status;
    const absl::Status in_pairs = (*harness)->StepsInPairs(inputs, forms);
    EXPECT_TRUE(in_pairs.ok()) << in_pairs;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LowLatencyScheduleTest,
                         ::testing::Values("random", "starve_device", "starve_block", "starve_wave",
                                           "delay_device", "lap"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace octet
