// Tuning tables: calls with products.
#include "kernels/tuning/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "octet/routed_experts.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr absl::string_view kFusedEntry =
    R"({"platform": "nvidia", "gpu": "some GPU", "ranks": 4, "call": "dispatch_gemm",)"
    R"( "rows": [64, 127], "row_bytes": [512, 1023], "format": "same", "intermediate": 40,)"
    R"( "activation": "swiglu", "fusion": "tiles", "tiles": "medium", "send_percent": 22,)"
    R"( "fill_percent": 8, "note": "measured"})";

Topology SomeGpus() {
  Topology topology;
  topology.platform = "nvidia";
  topology.gpus.resize(4);
  for (GpuInfo& gpu : topology.gpus) gpu.name = "some GPU";
  return topology;
}

// Matches kFusedEntry.
RoutedExpertsConfig Calls() {
  RoutedExpertsConfig config;
  config.ep.num_experts = 8;
  config.ep.topk = 2;
  config.ep.hidden = 256;
  config.ep.max_tokens_per_rank = 32;
  config.intermediate = 40;
  return config;
}

std::string FusedFile(absl::string_view entry) {
  return absl::StrCat(R"({"schema": 1, "entries": [], "fused": [)", entry, "]}");
}

TEST(FusedTuning, AreFoundForTheirCallsAlone) {
  const absl::StatusOr<TuningTable> table = TuningTable::Parse(FusedFile(kFusedEntry), "f");
  ASSERT_TRUE(table.ok()) << table.status();
  const auto find = [&](const RoutedExpertsConfig& config,
                        FusedCall call = FusedCall::kDispatchGemm, int ranks = 4) {
    return table->FindFusion(SomeGpus(), ranks, call, config);
  };
  ASSERT_TRUE(find(Calls()).has_value());
  const FusedChoice choice = find(Calls()).value_or(FusedChoice());
  EXPECT_EQ(choice.fusion, Fusion::kTiles);
  EXPECT_EQ(choice.tuning.tiles, GemmTiles::kMedium);
  EXPECT_EQ(choice.tuning.send_percent, 22);
  EXPECT_EQ(choice.tuning.fill_percent, 8);
  EXPECT_FALSE(find(Calls(), FusedCall::kGemmCombine).has_value());
  EXPECT_FALSE(find(Calls(), FusedCall::kDispatchGemm, 2).has_value());
  const auto other = [&](const std::function<void(RoutedExpertsConfig&)>& alter) {
    RoutedExpertsConfig config = Calls();
    alter(config);
    return find(config).has_value();
  };
  EXPECT_TRUE(other([](RoutedExpertsConfig& c) { c.ep.max_tokens_per_rank = 63; }));
  EXPECT_FALSE(other([](RoutedExpertsConfig& c) { c.ep.max_tokens_per_rank = 64; }));
  EXPECT_FALSE(other([](RoutedExpertsConfig& c) { c.ep.hidden = 512; }));
  EXPECT_FALSE(other([](RoutedExpertsConfig& c) { c.intermediate = 48; }));
  EXPECT_FALSE(other([](RoutedExpertsConfig& c) { c.activation = GemmActivation::kNone; }));
  EXPECT_FALSE(other([](RoutedExpertsConfig& c) { c.ep.dispatch_format = DispatchFormat::kFp8; }));
}

// What was measured for few experts may not fit where there are many.
TEST(FusedTuning, AreForANumberOfExperts) {
  const std::string of_eight =
      absl::StrReplaceAll(kFusedEntry, {{"\"note\"", "\"experts\": 8, \"note\""}});
  absl::StatusOr<TuningTable> table = TuningTable::Parse(FusedFile(of_eight), "f");
  ASSERT_TRUE(table.ok()) << table.status();
  const auto find = [&](int experts) {
    RoutedExpertsConfig config = Calls();
    config.ep.num_experts = experts;
    return table->FindFusion(SomeGpus(), 4, FusedCall::kDispatchGemm, config).has_value();
  };
  EXPECT_TRUE(find(8));
  EXPECT_FALSE(find(256));
  EXPECT_EQ(table->fused_entries()[0].key,
            FusedTuningKeyOf(SomeGpus(), 4, FusedCall::kDispatchGemm, Calls()));
  EXPECT_THAT(table->ToJson(), HasSubstr("\"experts\":8,"));
  EXPECT_THAT(
      std::string(TuningTable::Parse(
                      FusedFile(absl::StrReplaceAll(of_eight, {{": 8, \"n", ": 0, \"n"}})), "f")
                      .status()
                      .message()),
      HasSubstr("f: fused[0]: experts is 0; it must be a whole number from 1 up"));
}

// Entries of files that do not say how many experts there were are for any number, until such calls
// are measured again.
TEST(FusedTuning, WithoutANumberOfExpertsAreForAny) {
  const auto parse = [] {
    absl::StatusOr<TuningTable> table = TuningTable::Parse(FusedFile(kFusedEntry), "f");
    EXPECT_TRUE(table.ok()) << table.status();
    return *std::move(table);
  };
  TuningTable table = parse();
  RoutedExpertsConfig many = Calls();
  many.ep.num_experts = 256;
  for (const RoutedExpertsConfig& config : {Calls(), many}) {
    EXPECT_TRUE(table.FindFusion(SomeGpus(), 4, FusedCall::kDispatchGemm, config).has_value());
  }
  EXPECT_THAT(table.ToJson(), Not(HasSubstr("experts")));
  const FusedTuningKey key = FusedTuningKeyOf(SomeGpus(), 4, FusedCall::kDispatchGemm, many);
  table.Set(FusedTuningEntry{.key = key});
  EXPECT_THAT(table.fused_entries(), SizeIs(1));
  EXPECT_FALSE(table.FindFusion(SomeGpus(), 4, FusedCall::kDispatchGemm, Calls()).has_value());
  table = parse();
  table.Remove(key);
  EXPECT_THAT(table.fused_entries(), SizeIs(0));
}

TEST(FusedTuning, IsReadAsItIsWritten) {
  absl::StatusOr<TuningTable> table = TuningTable::Parse(FusedFile(kFusedEntry), "f");
  ASSERT_TRUE(table.ok()) << table.status();
  FusedTuningEntry entry = {.key =
                                FusedTuningKeyOf(SomeGpus(), 4, FusedCall::kGemmCombine, Calls())};
  entry.choice = {.fusion = Fusion::kTiles,
                  .tuning = {.tiles = GemmTiles::kWide, .combine_percent = 25, .row_parts = 8}};
  table->Set(entry);
  FusedTuningEntry none = {.key =
                               FusedTuningKeyOf(SomeGpus(), 2, FusedCall::kGemmCombine, Calls())};
  table->Set(none);
  FusedTuningEntry epilogue = {
      .key = FusedTuningKeyOf(SomeGpus(), 8, FusedCall::kGemmCombine, Calls()),
      .choice = {.fusion = Fusion::kEpilogue, .tuning = {.row_parts = 2}}};
  table->Set(epilogue);
  FusedTuningEntry dispatch = {
      .key = FusedTuningKeyOf(SomeGpus(), 8, FusedCall::kDispatchGemm, Calls()),
      .choice = {.fusion = Fusion::kTiles,
                 .tuning = {.send_percent = 5,
                            .fill_percent = 6,
                            .send_order = SendOrder::kToken,
                            .tile_waits = TileWaits::kExpert,
                            .stages = 1}}};
  table->Set(dispatch);
  ASSERT_THAT(table->fused_entries(), SizeIs(5));
  const absl::StatusOr<TuningTable> again = TuningTable::Parse(table->ToJson(), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToJson(), table->ToJson());
  const FusedChoice found =
      again->FindFusion(SomeGpus(), 4, FusedCall::kGemmCombine, Calls()).value_or(FusedChoice());
  EXPECT_EQ(found.tuning.combine_percent, 25);
  EXPECT_EQ(found.tuning.row_parts, 8);
  EXPECT_TRUE(again->FindFusion(SomeGpus(), 2, FusedCall::kGemmCombine, Calls()).has_value());
  const FusedChoice scattered =
      again->FindFusion(SomeGpus(), 8, FusedCall::kGemmCombine, Calls()).value_or(FusedChoice());
  EXPECT_EQ(scattered.fusion, Fusion::kEpilogue);
  EXPECT_EQ(scattered.tuning.combine_percent, 0);
  EXPECT_EQ(scattered.tuning.row_parts, 2);
  const FusedTuning sent = again->FindFusion(SomeGpus(), 8, FusedCall::kDispatchGemm, Calls())
                               .value_or(FusedChoice())
                               .tuning;
  EXPECT_EQ(sent.send_order, SendOrder::kToken);
  EXPECT_EQ(sent.tile_waits, TileWaits::kExpert);
  EXPECT_EQ(sent.stages, 1);
  table->Remove(entry.key);
  table->Remove(none.key);
  table->Remove(epilogue.key);
  table->Remove(dispatch.key);
  table->Remove(FusedTuningKey(table->fused_entries()[0].key));
  EXPECT_THAT(table->ToJson(), Not(HasSubstr("fused"))) << "as before there were such entries";
}

TEST(FusedTuning, RefusesWhatItCannotRead) {
  const auto with = [](absl::string_view from, absl::string_view to) {
    const std::string entry = absl::StrReplaceAll(kFusedEntry, {{from, to}});
    EXPECT_NE(entry, kFusedEntry);
    return std::string(TuningTable::Parse(FusedFile(entry), "f").status().message());
  };
  EXPECT_EQ(with("\"tiles\", \"tiles\"", "\"auto\", \"tiles\""),
            "f: fused[0]: fusion is auto, which dispatch_gemm cannot take");
  EXPECT_EQ(with("\"tiles\", \"tiles\"", "\"serial\", \"tiles\""),
            "f: fused[0]: fusion is serial, which dispatch_gemm cannot take");
  EXPECT_EQ(with("\"tiles\", \"tiles\"", "\"epilogue\", \"tiles\""),
            "f: fused[0]: fusion is epilogue, which dispatch_gemm cannot take");
  EXPECT_EQ(with("\"send_percent\"", "\"stages\": 3, \"send_percent\""),
            "f: fused[0]: stages is 3; it must be 2 at most");
  EXPECT_THAT(with("\"send_percent\"", "\"send_order\": 1, \"send_percent\""),
              HasSubstr("f: fused[0]: send_order is 1; it must be a string"));
  EXPECT_EQ(with("22", "101"), "f: fused[0]: send_percent is 101; it must be 100 at most");
  EXPECT_EQ(with("22", "0"), "f: fused[0]: send_percent is 0; it must be a whole number from 1 up");
  EXPECT_EQ(with("fill_percent", "row_parts"), "f: fused[0]: unknown field 'row_parts'");
  EXPECT_THAT(with("dispatch_gemm", "step"), HasSubstr("call is \"step\"; it must be one of"));
  EXPECT_EQ(with("\"note\"", "\"remark\""), "f: fused[0]: unknown field 'remark'");
}

// ---- what GroupedGemm::Create makes of it

}  // namespace
}  // namespace octet
