// What only high_throughput can do with rows: other formats and layouts, places given by the
// caller, a budget of blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/ep_calls.h"
#include "octet/dtype.h"
#include "octet/expert_parallel.h"
#include "octet/trace.h"
#include "tests/kernels/high_throughput/high_throughput_fixture.h"
#include "tests/support/random_step.h"

namespace octet {
namespace {

TEST_F(HighThroughputTest, RowsOnceWithAnIndex) {
  EpConfig config = Config(12, 5, 72, 9);
  config.high_throughput.duplicates = Duplicates::kIndex;
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({9, 4, 7}));
  RunStep(RandomStepOf({0, 9, 1}, 0.4));
}

TEST_F(HighThroughputTest, DeduplicatedRowsWithTheirChoices) {
  EpConfig config = Config(12, 5, 72, 9);
  config.output = Output::kDeduplicated;
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({9, 4, 7}));
  RunStep(RandomStepOf({0, 9, 1}, 0.4));
}

TEST_F(HighThroughputTest, ExpertsStartAlignedAndPaddingIsZero) {
  for (const Duplicates duplicates : {Duplicates::kFill, Duplicates::kIndex}) {
    EpConfig config = Config(12, 3, 72, 9);
    config.high_throughput.duplicates = duplicates;
    config.high_throughput.expert_alignment = 8;
    MAKE_OR_SKIP(3, config);
    RunStep(RandomStepOf({9, 4, 7}));
    RunStep(RandomStepOf({9, 9, 9}, 0.5));
    RunStep(RandomStepOf({0, 0, 1}));
  }
}

TEST_F(HighThroughputTest, Fp8RowsWithScales) {
  for (const ScaleFormat scales : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
    for (const Output output : {Output::kPackedExperts, Output::kDeduplicated}) {
      EpConfig config = Config(8, 4, 1232, 6);  // ten groups, the last one short
      config.dispatch_format = DispatchFormat::kFp8;
      config.scale_format = scales;
      config.output = output;
      MAKE_OR_SKIP(2, config);
      EXPECT_EQ(this->config().scale_words(), scales == ScaleFormat::kFloat32 ? 10 : 3);
      RunStep(RandomStepOf({6, 5}, 0.1));
    }
  }
}

TEST_F(HighThroughputTest, RawBytes) {
  EpConfig config = Config(8, 4, 64, 6);
  config.dispatch_format = DispatchFormat::kBytes;
  config.high_throughput.row_bytes = 1040;
  config.high_throughput.expert_alignment = 4;
  MAKE_OR_SKIP(4, config);
  RunStep(RandomStepOf({6, 5, 0, 3}, 0.1));
}

// The experts' rows are those that were received, whatever those are made of.
TEST_F(HighThroughputTest, BytesAreCombinedInPlace) {
  for (const CombineMethod method : {CombineMethod::kPush, CombineMethod::kPull}) {
    for (const CombineOrder order : {CombineOrder::kPerRank, CombineOrder::kFlat}) {
      EpConfig config = Config(8, 4, 256, 17);
      config.dispatch_format = DispatchFormat::kBytes;
      config.high_throughput.row_bytes = 2 * config.hidden;
      config.combine_method = method;
      config.combine_order = order;
      MAKE_OR_SKIP(4, config);
      for (int i = 0; i < 4; ++i) {
        EXPECT_OK(harness_->Step(RandomStep(rng_, this->config(), {17, 17, 9, 16})))
            << static_cast<int>(method) << static_cast<int>(order);
      }
    }
  }
}

TEST_F(HighThroughputTest, ScatterIndicesSayWhereRowsGo) {
  EpConfig config = Config(6, 3, 72, 20);
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({20, 3, 11}, 0.2, true));
  RunStep(RandomStepOf({20, 3, 11}, 0.2));
}

// Outputs that differ from expert to expert: a map that names a token's first row for each of its
// choices would add that one again and again.
TEST_F(HighThroughputTest, EveryExpertOfARankAddsItsOwnOutput) {
  MAKE_OR_SKIP(2, Config(8, 8, 64, 5));
  StepInput step = RandomStepOf({5, 5});
  for (size_t e = 0; e < step.expert_scale.size(); ++e) {
    step.expert_scale[e] = static_cast<float>(1U << e);
  }
  RunStep(step);
}

TEST_F(HighThroughputTest, BiasIsAddedLast) {
  for (const CombineOrder order : {CombineOrder::kFlat, CombineOrder::kPerRank}) {
    EpConfig config = Config(6, 3, 72, 9);
    config.combine_order = order;
    config.dtype = DType::kFloat16;
    MAKE_OR_SKIP(3, config);
    const StepInput step = RandomStepOf({9, 0, 4}, 0.3);
    EXPECT_OK(harness_->Dispatch(step));
    std::vector<uint16_t> bias;
    for (int h = 0; h < config.hidden; ++h) {
      bias.push_back(BitsFromFloat(config.dtype, static_cast<float>(h) / 7.0F - 4.0F));
    }
    EXPECT_OK(harness_->Combine(step, harness_->Handles(), bias));
  }
}

// Of what has run, not of what was asked for.
TEST_F(HighThroughputTest, BlocksAreABudget) {
  for (const int max_blocks : {1, 2, 3}) {
    // So much work that an emulated GPU, too, takes more blocks by itself.
    EpConfig config = Config(12, 4, 4096, 40);
    config.tuning = {};
    config.max_blocks = max_blocks;
    MAKE_OR_SKIP(3, config);
    const auto trace = TraceCollector::Create(harness_->node(), 256, 1024);
    ASSERT_OK(trace.status());
    ASSERT_OK(harness_->Trace(**trace));
    RunStep(RandomStepOf({20, 11, 7}));
    const auto slices = (*trace)->Collect();
    ASSERT_OK(slices.status());
    std::set<int> blocks;
    std::set<absl::string_view> phases;
    for (const TraceSlice& slice : *slices) {
      blocks.insert(slice.block);
      phases.insert(ep().calls().trace_tags()[slice.tag].phase.name);
    }
    EXPECT_EQ(blocks.size(), static_cast<size_t>(max_blocks));
    EXPECT_LT(*blocks.rbegin(), max_blocks);
    EXPECT_EQ(phases.size(), 5U) << "of both calls";
    harness_.reset();
  }
}

// Blocks with a share of the tokens and no column of the counts: nothing but the count of its share
// says that a share's routes are there.
// So many that a wave of a combine returns several before it publishes them.
TEST_F(HighThroughputTest, ManyTokensForAWave) {
  for (const CombineOrder order : {CombineOrder::kPerRank, CombineOrder::kFlat}) {
    for (const Output output : {Output::kPackedExperts, Output::kDeduplicated}) {
      if (order == CombineOrder::kFlat && output == Output::kDeduplicated) continue;
      EpConfig config = Config(8, 4, 264, 67);
      config.output = output;
      config.combine_order = order;
      config.tuning = {.blocks = 1, .waves_per_block = 1, .row_parts = 2};
      MAKE_OR_SKIP(2, config);
      RunStep(RandomStepOf({67, 61}));
      RunStep(RandomStepOf({3, 67}, 0.4));
    }
  }
}

TEST_F(HighThroughputTest, MoreBlocksThanColumns) {
  EpConfig config = Config(2, 1, 64, 40);
  config.tuning.blocks = 12;
  config.tuning.waves_per_block = 1;
  MAKE_OR_SKIP(2, config);
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    RunStep(RandomStepOf({40, 31}));
  }
}

// More counts than a block keeps of all ranks.
TEST_F(HighThroughputTest, CountsThatAreReadTwice) {
  EpConfig config = Config(1700, 3, 64, 12);
  MAKE_OR_SKIP(5, config);
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    RunStep(RandomStepOf({12, 9, 0, 12, 1}));
  }
}

TEST_F(HighThroughputTest, RandomShapes) {
  const auto one_of = [this](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<ptrdiff_t>(rng_() % values.size()));
  };
  for (int round = 0; round < 12; ++round) {
    rng_.seed(1000 + static_cast<uint64_t>(round));
    const int ranks = one_of({1, 2, 3, 4, 5});
    const int num_experts = ranks * one_of({1, 2, 3, 8});
    EpConfig config =
        Config(num_experts,
               1 + static_cast<int>(rng_() % static_cast<uint64_t>(std::min(32, num_experts))),
               one_of({16, 48, 256, 1040}), one_of({1, 5, 17, 70}));
    config.dispatch_format = static_cast<DispatchFormat>(one_of({0, 1, 2}));
    config.high_throughput.row_bytes = 48;
    config.scale_format = static_cast<ScaleFormat>(one_of({0, 1}));
    config.output = static_cast<Output>(one_of({0, 0, 1}));
    if (config.output == Output::kPackedExperts) {
      config.high_throughput.duplicates = static_cast<Duplicates>(one_of({0, 1}));
      config.high_throughput.expert_alignment = one_of({1, 4, 16});
      config.combine_order = static_cast<CombineOrder>(one_of({0, 1}));
      config.combine_method = static_cast<CombineMethod>(one_of({0, 1, 2}));
    }
    config.max_blocks = one_of({0, 2, 3});
    if (config.max_blocks > 0) config.tuning.blocks = config.max_blocks;
    config.tuning.waves_per_block = one_of({0, 1, 2, 3});
    config.tuning.row_parts = one_of({0, 1, 3});
    config.tuning.row_copies = static_cast<RowCopies>(one_of({0, 2}));
    config.tuning.send_waves = one_of({0, 1});
    MAKE_OR_SKIP(ranks, config);
    SCOPED_TRACE(absl::StrCat("round ", round));
    const bool scatter = one_of({0, 0, 1}) == 1;
    RunStep(
        RandomStepOf(RandomTokens(rng_, this->config(), ranks), one_of({0, 3}) / 10.0, scatter));
  }
}

}  // namespace
}  // namespace octet
