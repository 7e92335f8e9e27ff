#include "octet/ep_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/ep/strategy_registry.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

EpConfig Good() {
  EpConfig config;
  config.num_experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens_per_rank = 256;
  return config;
}

void ExpectRefused(const EpConfig& config, int num_ranks, const std::string& sentence) {
  const absl::Status status = Validate(config, num_ranks);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(sentence));
}

TEST(EpConfigTest, GoodConfigurationsPass) {
  for (const int ranks : {1, 2, 4, 8, 16}) EXPECT_TRUE(Validate(Good(), ranks).ok());
  EpConfig config = Good();
  config.num_experts = 5;
  config.topk = 5;
  config.hidden = 8;
  config.max_tokens_per_rank = 1;
  EXPECT_TRUE(Validate(config, 5).ok());
}

TEST(EpConfigTest, EachFieldIsNamedWithItsValue) {
  ExpectRefused(Good(), 0, "num_ranks is 0");
  ExpectRefused(Good(), 17, "num_ranks is 17; it must be from 1 to 16");
  ExpectRefused(Good(), 7, "num_experts is 256; it must be divisible by the 7 ranks");
  EpConfig config = Good();
  config.num_experts = 0;
  ExpectRefused(config, 8, "num_experts is 0");
  config = Good();
  config.hidden = 7164;
  ExpectRefused(config, 8, "hidden is 7164; it must be a multiple of 8");
  config.hidden = 0;
  ExpectRefused(config, 8, "hidden is 0");
  config = Good();
  config.topk = 33;
  ExpectRefused(config, 8, "topk is 33; it must be from 1 to 32");
  config.topk = 0;
  ExpectRefused(config, 8, "topk is 0");
  config.num_experts = 8;
  config.topk = 9;
  ExpectRefused(config, 8, "topk is 9; it must be from 1 to 8");
  config = Good();
  config.max_tokens_per_rank = 0;
  ExpectRefused(config, 8, "max_tokens_per_rank is 0");
  config = Good();
  config.tuning.row_parts = -1;
  ExpectRefused(config, 8, "row_parts -1");
  config.tuning.row_parts = 33;
  ExpectRefused(config, 8, "row_parts is 33; it must be from 0 to 32");
}

TEST(EpConfigTest, PerNodeIsForSeveralNodes) {
  EXPECT_EQ(EnumName(CombineOrder::kPerNode), "per_node");
  EpConfig config = Good();
  config.combine_order = CombineOrder::kPerNode;
  for (const auto& [strategy, name] : EnumTable(Strategy{})) {
    config.strategy = strategy;
    ExpectRefused(config, 8, "combine_order is per_node");
  }
}

TEST(EpConfigTest, RoomForRows) {
  EpConfig config = Good();
  config.num_experts = 24;  // three on each of eight ranks
  config.topk = 2;
  config.max_tokens_per_rank = 10;
  EXPECT_EQ(config.max_rows(8), 8 * 10 * 2);
  EXPECT_EQ(config.expert_out_rows(8), 8 * 10 * 2);
  config.topk = 4;
  EXPECT_EQ(config.max_rows(8), 8 * 10 * 3);
  config.high_throughput.expert_alignment = 16;
  EXPECT_EQ(config.max_rows(8), 8 * 10 * 3 + 3 * 15);
  config.high_throughput.expert_alignment = 1;
  config.output = Output::kDeduplicated;
  EXPECT_EQ(config.max_rows(8), 8 * 10 * 3);
  EXPECT_EQ(config.expert_out_rows(8), 8 * 10);
  config.topk = 2;
  config.output = Output::kRankMajor;
  EXPECT_EQ(config.expert_out_rows(8), 8 * 10 * 2);
  config.output = Output::kExpertMajor;
  EXPECT_EQ(config.expert_out_rows(8), 3 * 8 * 10);
}

TEST(EpConfigTest, StrategyNamesParseBack) {
  std::vector<Strategy> strategies = AllStrategies();
  strategies.push_back(Strategy::kAuto);
  for (const Strategy strategy : strategies) {
    const absl::StatusOr<Strategy> parsed = ParseEnum<Strategy>("strategy", EnumName(strategy));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, strategy);
  }
  EXPECT_FALSE(ParseEnum<Strategy>("strategy", "Direct").ok());
}

TEST(EpConfigTest, WhatOnlyHighThroughputCanDo) {
  EpConfig config = Good();
  config.strategy = Strategy::kHighThroughput;
  config.dispatch_format = DispatchFormat::kFp8;
  config.high_throughput.expert_alignment = 128;
  config.combine_order = CombineOrder::kFlat;
  config.combine_method = CombineMethod::kPull;
  config.high_throughput.host_totals = true;
  EXPECT_TRUE(Validate(config, 8).ok()) << Validate(config, 8);
  config.strategy = Strategy::kDirect;
  ExpectRefused(config, 8,
                "expert_alignment, host_totals need the strategy high_throughput, not direct");
  config.high_throughput = {};
  ExpectRefused(config, 8, "dispatch_format fp8 needs the strategy high_throughput, not direct");
  config.dispatch_format = DispatchFormat::kSame;
  config.combine_order = CombineOrder::kAuto;
  ExpectRefused(config, 8, "by push only");
  config = Good();
  config.strategy = Strategy::kDirect;
  config.combine_order = CombineOrder::kPerRank;
  ExpectRefused(config, 8, "order flat");
}

TEST(EpConfigTest, WhatOnlyLowLatencyCanDo) {
  for (const Output output : {Output::kExpertMajor, Output::kRankMajor}) {
    EpConfig config = Good();
    config.strategy = Strategy::kLowLatency;
    config.output = output;
    EXPECT_TRUE(Validate(config, 8).ok()) << Validate(config, 8);
    for (const Strategy other : {Strategy::kDirect, Strategy::kHighThroughput}) {
      config.strategy = other;
      ExpectRefused(config, 8,
                    absl::StrCat("output ", EnumName(output),
                                 " needs the strategy low_latency, not ", EnumName(other)));
    }
  }
}

// Every option of a strategy that is not at its default is refused by all others.
TEST(EpConfigTest, OptionsOfOtherStrategies) {
  struct Case {
    absl::string_view option;
    Strategy owner;
    void (*set)(EpConfig& config);
  };
  const Case cases[] = {
      {"slots", Strategy::kDirect, [](EpConfig& c) { c.variant.slots = Slots::kAtomic; }},
      {"flags", Strategy::kDirect, [](EpConfig& c) { c.variant.flags = Flags::kSource; }},
      {"failure_policy", Strategy::kLowLatency,
       [](EpConfig& c) { c.low_latency.failure_policy = FailurePolicy::kMask; }},
      {"mask_timeout", Strategy::kLowLatency,
       [](EpConfig& c) { c.low_latency.mask_timeout = absl::Seconds(1); }},
      {"statistics", Strategy::kLowLatency, [](EpConfig& c) { c.low_latency.statistics = true; }},
      {"duplicates", Strategy::kHighThroughput,
       [](EpConfig& c) { c.high_throughput.duplicates = Duplicates::kIndex; }},
      {"expert_alignment", Strategy::kHighThroughput,
       [](EpConfig& c) { c.high_throughput.expert_alignment = 8; }},
      {"row_bytes", Strategy::kHighThroughput,
       [](EpConfig& c) { c.high_throughput.row_bytes = 32; }},
      {"kept_layouts", Strategy::kHighThroughput,
       [](EpConfig& c) { c.high_throughput.kept_layouts = 2; }},
      {"host_totals", Strategy::kHighThroughput,
       [](EpConfig& c) { c.high_throughput.host_totals = true; }},
      {"row_arrivals", Strategy::kHighThroughput,
       [](EpConfig& c) { c.high_throughput.row_arrivals = true; }},
  };
  for (const Case& c : cases) {
    for (const Strategy strategy : AllStrategies()) {
      if (strategy == c.owner) continue;
      EpConfig config = Good();
      config.strategy = strategy;
      c.set(config);
      ExpectRefused(config, 8,
                    absl::StrCat(c.option, " needs the strategy ", EnumName(c.owner), ", not ",
                                 EnumName(strategy)));
    }
  }
}

TEST(EpConfigTest, WhatLowLatencyCannotDo) {
  EpConfig good = Good();
  good.strategy = Strategy::kLowLatency;
  EpConfig config = good;
  config.max_tokens_per_rank = 1025;
  ExpectRefused(config, 8, "low_latency: max_tokens_per_rank is 1025; it must be from 1 to 1024");
  config = good;
  config.num_experts = 1032;
  ExpectRefused(config, 8, "low_latency: num_experts is 1032");
  config = good;
  config.hidden = 16392;
  ExpectRefused(config, 8, "low_latency: hidden is 16392");
  config = good;
  config.variant.flags = Flags::kSource;
  ExpectRefused(config, 8, "flags needs the strategy direct, not low_latency");
  config = good;
  config.combine_method = CombineMethod::kPull;
  ExpectRefused(config, 8, "low_latency combines by push only");
  config = good;
  config.output = Output::kDeduplicated;
  ExpectRefused(config, 8, "output deduplicated needs the strategy high_throughput");
  config = good;
  config.dispatch_format = DispatchFormat::kQuantizedFp8;
  EXPECT_TRUE(Validate(config, 8).ok()) << Validate(config, 8);
}

TEST(EpConfigTest, WhatHighThroughputCannotDo) {
  EpConfig good = Good();
  good.strategy = Strategy::kHighThroughput;
  EpConfig config = good;
  config.variant.slots = Slots::kAtomic;
  ExpectRefused(config, 8, "slots needs the strategy direct, not high_throughput");
  config = good;
  config.dispatch_format = DispatchFormat::kBytes;
  ExpectRefused(config, 8, "row_bytes is 0; it must be from 16");
  config.high_throughput.row_bytes = 24;
  ExpectRefused(config, 8, "24 bytes; they must be a multiple of 16");
  config = good;
  config.dispatch_format = DispatchFormat::kFp8;
  config.hidden = 1032;
  ExpectRefused(config, 8, "1032 bytes; they must be a multiple of 16");
  config = good;
  config.output = Output::kDeduplicated;
  config.combine_order = CombineOrder::kFlat;
  ExpectRefused(config, 8, "must be per_rank");
  config.combine_order = CombineOrder::kAuto;
  config.high_throughput.expert_alignment = 8;
  ExpectRefused(config, 8, "neither duplicates nor an expert_alignment");
  config = good;
  config.high_throughput.expert_alignment = 0;
  ExpectRefused(config, 8, "expert_alignment is 0");
  config = good;
  config.high_throughput.kept_layouts = 0;
  ExpectRefused(config, 8, "kept_layouts is 0");
  config = good;
  config.max_blocks = 8;
  config.tuning.blocks = 9;
  ExpectRefused(config, 8, "max_blocks is 8, with blocks 9");
}

TEST(EpConfigTest, QuantisedRows) {
  EpConfig config = Good();
  config.dispatch_format = DispatchFormat::kQuantizedFp8;
  EXPECT_EQ(config.dispatch_row_bytes(), 14336U);
  EXPECT_EQ(config.received_row_bytes(), 7168U);
  EXPECT_EQ(config.scale_words(), 56);
  config.scale_format = ScaleFormat::kPowerOfTwo;
  EXPECT_EQ(config.scale_words(), 56);
  config.scale_format = ScaleFormat::kUe8m0;
  config.hidden = 7176;
  EXPECT_EQ(config.scale_words(), 15);
  EXPECT_EQ(config.received_row_bytes(), 7184U);
  config.strategy = Strategy::kDirect;
  ExpectRefused(config, 8,
                "dispatch_format quantized_fp8 needs the strategy low_latency, not direct");
  config.strategy = Strategy::kHighThroughput;
  ExpectRefused(config, 8, "needs the strategy low_latency, not high_throughput");
  config.scale_group = 32;
  ExpectRefused(config, 8, "scale_group is 32");
  config.scale_group = 256;
  config.fp8_form =
      WithNativeFp8(Fp8Form::kNative) == Fp8Form::kE4m3Fn ? Fp8Form::kE4m3Fnuz : Fp8Form::kE4m3Fn;
  ExpectRefused(config, 8, "this platform quantises to e4m3fn");
}

TEST(EpConfigTest, AutoNeedsOneStrategyForAllOfIt) {
  EpConfig config = Good();
  config.output = Output::kExpertMajor;
  EXPECT_TRUE(Validate(config, 8).ok()) << Validate(config, 8);
  config.max_tokens_per_rank = 2000;
  ExpectRefused(config, 8,
                "no strategy supports all of it: "
                "output expert_major needs the strategy low_latency, not direct; "
                "output expert_major needs the strategy low_latency, not high_throughput; "
                "low_latency: max_tokens_per_rank is 2000");
  config = Good();
  config.dispatch_format = DispatchFormat::kQuantizedFp8;
  config.high_throughput.host_totals = true;
  ExpectRefused(config, 8,
                "no strategy supports all of it: host_totals needs the strategy high_throughput, "
                "not direct; ");
}

}  // namespace
}  // namespace octet
