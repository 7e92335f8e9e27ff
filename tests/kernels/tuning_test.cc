// Tuning tables: what may stand in them, what they are found by, and that both Creates use them.
#include "kernels/tuning/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "octet/expert_parallel.h"
#include "octet/fused_experts.h"
#include "octet/grouped_gemm.h"
#include "runtime/gpu/gpu_name.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr absl::string_view kEntry =
    R"({"platform": "nvidia", "gpu": "NVIDIA H200", "ranks": 8, "strategy": "direct",
        "rows": [1024, 2047], "row_bytes": [8192, 16383],
        "blocks": 132, "send_blocks": 40, "waves": 8, "row_parts": 2, "note": "measured"})";

constexpr absl::string_view kChoice =
    R"({"platform": "nvidia", "gpu": "NVIDIA H200", "ranks": 8, "strategy": "auto",
        "rows": [1024, 2047], "row_bytes": [8192, 16383], "chosen": "low_latency"})";

constexpr absl::string_view kGemmEntry =
    R"({"gpu": "NVIDIA H200", "dtype": "bf16", "n": 4096, "k": 7168, "rows": [17, 32],
        "activation": "swiglu", "tiles": "few64", "note": "measured"})";

std::string GemmFile(absl::string_view entries) {
  return absl::StrCat(R"({"schema": 1, "entries": [], "gemm": [)", entries, "]}");
}

// A product of 32 rows per expert.
GroupedGemmConfig Product() {
  return {
      .experts = 8, .max_rows = 256, .n = 4096, .k = 7168, .activation = GemmActivation::kSwiGlu};
}

std::string File(absl::string_view entries) {
  return absl::StrCat(R"({"schema": 1, "entries": [)", entries, "]}");
}

EpConfig Config() {
  EpConfig config;
  config.num_experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens_per_rank = 128;
  config.strategy = Strategy::kDirect;
  return config;
}

Topology H200s() {
  Topology topology;
  topology.platform = "nvidia";
  topology.gpus.resize(8);
  topology.gpus[0].name = "NVIDIA H200";
  return topology;
}

TEST(TuningTable, IsFoundByCallsThatAreAlike) {
  const absl::StatusOr<TuningTable> table = TuningTable::Parse(File(kEntry), "file");
  ASSERT_TRUE(table.ok()) << table.status();
  const auto blocks = [&](const Topology& topology, int ranks, const EpConfig& config) {
    const std::optional<Tuning> tuning = table->Find(topology, ranks, config);
    return tuning.has_value() ? tuning->blocks : 0;
  };
  EXPECT_EQ(blocks(H200s(), 8, Config()), 132);
  const Tuning tuning = table->Find(H200s(), 8, Config()).value_or(Tuning());
  EXPECT_EQ(tuning.send_blocks, 40);
  EXPECT_EQ(tuning.waves_per_block, 8);
  EXPECT_EQ(tuning.row_parts, 2);
  EXPECT_EQ(table->MostRowParts(8, Config()), 2);
  EXPECT_EQ(blocks(H200s(), 4, Config()), 0);
  EpConfig config = Config();
  config.max_tokens_per_rank = 255;
  EXPECT_EQ(blocks(H200s(), 8, config), 132);
  config.max_tokens_per_rank = 256;
  EXPECT_EQ(blocks(H200s(), 8, config), 0);
  EXPECT_EQ(table->MostRowParts(8, config), 0);
  config = Config();
  config.hidden = 4088;
  EXPECT_EQ(blocks(H200s(), 8, config), 0);
  Topology other = H200s();
  other.gpus[0].name = "NVIDIA H100";
  EXPECT_EQ(blocks(other, 8, Config()), 0);
  EXPECT_EQ(table->MostRowParts(8, Config()), 2);  // of whatever GPU
  other = H200s();
  other.platform = "amd";
  EXPECT_EQ(blocks(other, 8, Config()), 0);
}

TEST(TuningTable, OneFormatIsNotLikeAnother) {
  EpConfig config = Config();
  config.strategy = Strategy::kLowLatency;
  config.dispatch_format = DispatchFormat::kQuantizedFp8;
  TuningTable table;
  table.Set({.key = TuningKeyOf(H200s(), 8, config), .tuning = {.blocks = 7}});
  EXPECT_EQ(table.entries()[0].key.format, DispatchFormat::kQuantizedFp8);
  EXPECT_TRUE(table.Find(H200s(), 8, config).has_value());
  config.dispatch_format = DispatchFormat::kSame;
  EXPECT_FALSE(table.Find(H200s(), 8, config).has_value());
  EXPECT_EQ(table.MostRowParts(8, config), 0);
  table.Set({.key = TuningKeyOf(H200s(), 8, config), .tuning = {.blocks = 9}});
  ASSERT_THAT(table.entries(), SizeIs(2));
  EXPECT_EQ(table.Find(H200s(), 8, config).value_or(Tuning()).blocks, 9);
}

TEST(TuningTable, OneLayoutOfReceivedRowsIsNotLikeAnother) {
  EpConfig config = Config();
  config.strategy = Strategy::kHighThroughput;
  config.output = Output::kDeduplicated;
  TuningTable table;
  table.Set({.key = TuningKeyOf(H200s(), 8, config),
             .tuning = {.blocks = 7,
                        .waves_per_block = 8,
                        .row_parts = 2,
                        .send_waves = 5,
                        .combine_send_waves = 3}});
  const absl::StatusOr<TuningTable> read = TuningTable::Parse(table.ToJson(), "file");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->entries()[0].key.received, Output::kDeduplicated);
  EXPECT_TRUE(read->Find(H200s(), 8, config).has_value());
  config.output = Output::kPackedExperts;
  EXPECT_FALSE(read->Find(H200s(), 8, config).has_value());
  EXPECT_EQ(read->MostRowParts(8, config), 0);
  table.Remove(TuningKeyOf(H200s(), 8, config));
  EXPECT_THAT(table.entries(), SizeIs(1));
  EXPECT_THAT(table.ToJson(), HasSubstr("\"received\":\"deduplicated\""));
}

TEST(TuningTable, KeysHoldWhatTheyWereMadeOf) {
  const TuningKey key = TuningKeyOf(H200s(), 8, Config());
  EXPECT_EQ(key.rows, (TuningRange{1024, 2047}));
  EXPECT_EQ(key.row_bytes, (TuningRange{8192, 16383}));
  EpConfig one = Config();
  one.max_tokens_per_rank = one.topk = 1;
  EXPECT_EQ(TuningKeyOf(H200s(), 8, one).rows, (TuningRange{1, 1}));
}

TEST(TuningTable, ReadsWhatItWrites) {
  absl::StatusOr<TuningTable> table = TuningTable::Parse(File(kEntry), "file");
  ASSERT_TRUE(table.ok()) << table.status();
  TuningEntry entry = table->entries()[0];
  entry.tuning.blocks = 264;
  table->Set(entry);
  ASSERT_THAT(table->entries(), SizeIs(1));
  entry.key.num_ranks = 4;
  entry.note = "a \"quoted\" note";
  table->Set(entry);
  const absl::StatusOr<TuningTable> again = TuningTable::Parse(table->ToJson(), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_THAT(again->entries(), SizeIs(2));
  EXPECT_EQ(again->entries()[0].tuning.blocks, 264);
  EXPECT_EQ(again->entries()[0].note, "measured");
  EXPECT_EQ(again->entries()[1].key, entry.key);
  EXPECT_EQ(again->entries()[1].note, entry.note);
  EXPECT_EQ(again->ToJson(), table->ToJson());
  table->Remove(entry.key);
  EXPECT_THAT(table->entries(), SizeIs(1));
  EXPECT_TRUE(TuningTable::Parse(TuningTable().ToJson(), "empty").ok());
}

TEST(TuningTable, HasTheFieldsOfTheStrategy) {
  const std::string entry =
      absl::StrReplaceAll(kEntry, {{"\"direct\"", "\"high_throughput\""},
                                   {"\"send_blocks\": 40", "\"send_waves\": 3"},
                                   {"\"row_parts\": 2",
                                    "\"combine_send_waves\": 5, \"row_parts\": 2, \"row_copies\": "
                                    "\"bulk\", \"format\": \"fp8\""}});
  absl::StatusOr<TuningTable> table = TuningTable::Parse(File(entry), "file");
  ASSERT_TRUE(table.ok()) << table.status();
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(table->entries()[0].tuning, (Tuning{.blocks = 132,
                                                  .waves_per_block = 8,
                                                  .row_parts = 2,
                                                  .send_waves = 3,
                                                  .combine_send_waves = 5,
                                                  .row_copies = RowCopies::kBulk}));
    EXPECT_EQ(table->entries()[0].key.format, DispatchFormat::kFp8);
    table = TuningTable::Parse(table->ToJson(), "again");
    ASSERT_TRUE(table.ok()) << table.status();
  }
  // Files from before these fields.
  const std::string old = absl::StrReplaceAll(
      entry, {{", \"row_copies\": \"bulk\"", ""}, {", \"format\": \"fp8\"", ""}});
  table = TuningTable::Parse(File(old), "file");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->entries()[0].tuning.row_copies, RowCopies::kAuto);
  EXPECT_EQ(table->entries()[0].key.format, DispatchFormat::kSame);
  const auto refusal = [&](absl::string_view from, absl::string_view to) {
    return std::string(
        TuningTable::Parse(File(absl::StrReplaceAll(entry, {{from, to}})), "f").status().message());
  };
  EXPECT_EQ(refusal("bulk", "slow"),
            "f: entries[0]: row_copies is \"slow\"; it must be one of auto, vectors, bulk");
  EXPECT_THAT(refusal("fp8", "fp9"), HasSubstr("one of same, fp8, bytes, quantized_fp8"));
  EXPECT_THAT(refusal("\"fp8\"", "8"), HasSubstr("format is 8; it must be a string"));
  const std::string mixed = absl::StrReplaceAll(kEntry, {{"direct", "high_throughput"}});
  EXPECT_THAT(std::string(TuningTable::Parse(File(mixed), "file").status().message()),
              HasSubstr("unknown field 'send_blocks'"));
}

TEST(TuningTable, SaysWhichStrategyToTake) {
  absl::StatusOr<TuningTable> table =
      TuningTable::Parse(File(absl::StrCat(kEntry, ",", kChoice)), "file");
  ASSERT_TRUE(table.ok()) << table.status();
  EpConfig config = Config();
  config.strategy = Strategy::kAuto;
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_THAT(table->entries(), SizeIs(2));
    EXPECT_EQ(table->FindStrategy(H200s(), 8, config), Strategy::kLowLatency);
    EXPECT_EQ(table->FindStrategy(H200s(), 4, config), std::nullopt);
    EXPECT_THAT(table->StrategiesFor(8, config), ElementsAre(Strategy::kLowLatency));
    EXPECT_THAT(table->StrategiesFor(4, config), IsEmpty());
    EXPECT_EQ(table->Find(H200s(), 8, Config()).value_or(Tuning()).blocks, 132);  // direct's
    table = TuningTable::Parse(table->ToJson(), "again");
    ASSERT_TRUE(table.ok()) << table.status();
  }
  TuningEntry entry = table->entries()[1];
  entry.chosen = Strategy::kDirect;
  table->Set(entry);
  EXPECT_EQ(table->FindStrategy(H200s(), 8, config), Strategy::kDirect);
  table->Remove(entry.key);
  EXPECT_THAT(table->entries(), SizeIs(1));
  EXPECT_EQ(table->FindStrategy(H200s(), 8, config), std::nullopt);
}

TEST(TuningTable, MistakesAreNamed) {
  const auto refusal = [](absl::string_view json) {
    const absl::Status status = TuningTable::Parse(json, "tuning f.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(""), StartsWith("tuning f.json is no JSON: parse error at line 1, column 1"));
  EXPECT_THAT(refusal("{\n \"schema\": 1,\n}"),
              StartsWith("tuning f.json is no JSON: parse error at line 3, column 1"));
  EXPECT_THAT(refusal("{\"schema\": 1e999}"), StartsWith("tuning f.json is no JSON: number"));
  EXPECT_EQ(refusal("[1]"), "tuning f.json is no JSON object");
  EXPECT_THAT(refusal("{}"), HasSubstr("schema must be 1"));
  EXPECT_THAT(refusal(R"({"schema": 2, "entries": []})"), HasSubstr("schema must be 1"));
  EXPECT_THAT(refusal(R"({"schema": 1, "entries": {}})"), HasSubstr("entries must be an array"));
  EXPECT_EQ(refusal(File("3")), "tuning f.json: entries[0] is no object");
  const auto with = [&](absl::string_view from, absl::string_view to) {
    const std::string changed = absl::StrReplaceAll(kEntry, {{from, to}});
    EXPECT_NE(changed, kEntry) << from;
    return refusal(File(absl::StrCat(kEntry, ",", changed)));
  };
  EXPECT_EQ(with("132", "0"),
            "tuning f.json: entries[1]: blocks is 0; it must be a whole number from 1 up");
  EXPECT_THAT(with("132", "1.5"), HasSubstr("entries[1]: blocks is 1.5"));
  EXPECT_THAT(with("132", "\"132\""), HasSubstr("blocks is \"132\""));
  EXPECT_THAT(with("132", "3000000000"), HasSubstr("blocks is 3000000000"));
  EXPECT_THAT(with("132", "99999999999999999999"), HasSubstr("blocks is"));
  EXPECT_THAT(with("\"waves\"", "\"wavs\""), HasSubstr("entries[1]: unknown field 'wavs'"));
  EXPECT_THAT(with(", \"waves\": 8", ""), HasSubstr("entries[1]: field 'waves' is missing"));
  EXPECT_THAT(with("[1024, 2047]", "[1024]"),
              HasSubstr("rows is [1024]; it must be [first, last]"));
  EXPECT_THAT(with("[1024, 2047]", "[2047, 1024]"), HasSubstr("rows is [2047,1024]"));
  EXPECT_THAT(with("[1024, 2047]", "[-1, 1024]"), HasSubstr("rows is [-1,1024]"));
  EXPECT_THAT(with("\"direct\"", "\"fast\""),
              HasSubstr("entries[1]: strategy: strategy 'fast' is not one of"));
  EXPECT_THAT(with("\"direct\"", "\"auto\""), HasSubstr("unknown field 'blocks'"));
  EXPECT_THAT(with("\"blocks\"", "\"chosen\""), HasSubstr("unknown field 'chosen'"));
  const auto choice = [&](absl::string_view chosen) {
    return refusal(File(absl::StrReplaceAll(kChoice, {{"\"chosen\": \"low_latency\"", chosen}})));
  };
  EXPECT_THAT(choice("\"note\": \"\""), HasSubstr("entries[0]: field 'chosen' is missing"));
  EXPECT_THAT(choice("\"chosen\": \"fast\""), HasSubstr("chosen: strategy 'fast' is not one of"));
  EXPECT_THAT(choice("\"chosen\": \"auto\""), HasSubstr("auto is chosen for auto"));
  EXPECT_THAT(with("\"NVIDIA H200\"", "8"), HasSubstr("gpu is 8; it must be a string"));
  EXPECT_THAT(with("\"row_parts\": 2", "\"row_parts\": 33"), HasSubstr("row_parts is 33"));
  EXPECT_THAT(with("\"measured\"", "3"), HasSubstr("note is 3"));
}

TEST(GemmTuning, IsFoundByProductsThatAreAlike) {
  const absl::StatusOr<TuningTable> table = TuningTable::Parse(GemmFile(kGemmEntry), "file");
  ASSERT_TRUE(table.ok()) << table.status();
  const auto find = [&](const GroupedGemmConfig& config) {
    return table->FindTiles("NVIDIA H200", config);
  };
  EXPECT_EQ(find(Product()), GemmTiles::kFew64);
  EXPECT_EQ(table->FindTiles("NVIDIA H100", Product()), std::nullopt);
  GroupedGemmConfig config = Product();
  for (const auto& [rows, found] :
       std::vector<std::pair<int64_t, bool>>{{16, false}, {17, true}, {32, true}, {33, false}}) {
    config.expected_rows = rows;
    EXPECT_EQ(find(config).has_value(), found) << rows;
  }
  // Neither a launch's size nor scales decide.
  config = Product();
  config.experts = 1;
  config.max_rows = 32;
  config.blocks = 3;
  EXPECT_TRUE(find(config).has_value());
  config.max_rows = 33;
  EXPECT_FALSE(find(config).has_value());
  config = Product();
  config.n = 4112;
  EXPECT_FALSE(find(config).has_value());
  config = Product();
  config.k = 7184;
  EXPECT_FALSE(find(config).has_value());
  config = Product();
  config.dtype = DType::kFloat16;
  EXPECT_FALSE(find(config).has_value());
  config = Product();
  config.format = GemmFormat::kFp8;
  EXPECT_FALSE(find(config).has_value());
  config = Product();
  config.activation = GemmActivation::kNone;
  EXPECT_FALSE(find(config).has_value());
}

TEST(GemmTuning, RangesOfRowsEndAtPowersOfTwo) {
  const auto rows = [](int64_t expected) {
    GroupedGemmConfig config = Product();
    config.expected_rows = expected;
    return GemmTuningKeyOf("some GPU", config).rows;
  };
  EXPECT_EQ(rows(1), (TuningRange{1, 1}));
  EXPECT_EQ(rows(2), (TuningRange{2, 2}));
  EXPECT_EQ(rows(16), (TuningRange{9, 16}));
  EXPECT_EQ(rows(17), (TuningRange{17, 32}));
  EXPECT_EQ(rows(32), (TuningRange{17, 32}));
}

TEST(GemmTuning, IsReadAsItIsWritten) {
  absl::StatusOr<TuningTable> table = TuningTable::Parse(
      absl::StrCat(R"({"schema": 1, "entries": [)", kEntry, R"(], "gemm": [)", kGemmEntry, "]}"),
      "file");
  ASSERT_TRUE(table.ok()) << table.status();
  GemmTuningEntry entry = table->gemm_entries()[0];
  entry.tiles = GemmTiles::kMedium;
  table->Set(entry);
  ASSERT_THAT(table->gemm_entries(), SizeIs(1));
  GroupedGemmConfig fp8 = Product();
  fp8.format = GemmFormat::kFp8;
  entry.key = GemmTuningKeyOf("other \"GPU\"", fp8);
  table->Set(entry);
  const absl::StatusOr<TuningTable> again = TuningTable::Parse(table->ToJson(), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->entries(), SizeIs(1));
  ASSERT_THAT(again->gemm_entries(), SizeIs(2));
  EXPECT_EQ(again->gemm_entries()[0].tiles, GemmTiles::kMedium);
  EXPECT_EQ(again->gemm_entries()[0].note, "measured");
  EXPECT_EQ(again->gemm_entries()[1].key, entry.key);
  EXPECT_EQ(again->FindTiles("other \"GPU\"", fp8), GemmTiles::kMedium);
  EXPECT_EQ(again->ToJson(), table->ToJson());
  EXPECT_THAT(table->ToJson(), HasSubstr("\"dtype\":\"fp8\""));
  table->Remove(entry.key);
  table->Remove(table->gemm_entries()[0].key);
  EXPECT_THAT(table->gemm_entries(), IsEmpty());
  EXPECT_THAT(table->ToJson(), Not(HasSubstr("gemm"))) << "as before there were such entries";
}

TEST(GemmTuning, MistakesAreNamed) {
  const auto refusal = [](absl::string_view json) {
    const absl::Status status = TuningTable::Parse(json, "f").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(status.message());
  };
  const auto with = [&](absl::string_view from, absl::string_view to) {
    const std::string changed = absl::StrReplaceAll(kGemmEntry, {{from, to}});
    EXPECT_NE(changed, kGemmEntry) << from;
    return refusal(GemmFile(absl::StrCat(kGemmEntry, ",", changed)));
  };
  EXPECT_EQ(with("few64", "huge"),
            "f: gemm[1]: tiles is \"huge\"; it must be one of wide, medium, few64, few32, few16");
  EXPECT_EQ(with("bf16", "fp4"), "f: gemm[1]: dtype is \"fp4\"; it must be one of bf16, fp16, fp8");
  EXPECT_EQ(with("swiglu", "gelu"),
            "f: gemm[1]: activation is \"gelu\"; it must be one of none, swiglu");
  EXPECT_EQ(with("4096", "0"), "f: gemm[1]: n is 0; it must be a whole number from 1 up");
  EXPECT_THAT(with("[17, 32]", "[32, 17]"), HasSubstr("gemm[1]: rows is [32,17]; it must be"));
  EXPECT_EQ(with("\"n\"", "\"m\""), "f: gemm[1]: field 'n' is missing");
  EXPECT_EQ(with("\"activation\": \"swiglu\",", ""), "f: gemm[1]: field 'activation' is missing");
  EXPECT_EQ(with("\"note\"", "\"remark\""), "f: gemm[1]: unknown field 'remark'");
  EXPECT_THAT(with("\"measured\"", "3"), HasSubstr("gemm[1]: note is 3"));
  EXPECT_EQ(refusal(GemmFile("3")), "f: gemm[0] is no object");
  EXPECT_EQ(refusal(R"({"schema": 1, "entries": [], "gemm": {}})"), "f: gemm must be an array");
  EXPECT_EQ(refusal(R"({"schema": 1, "entries": [], "gems": []})"), "f: unknown field 'gems'");
}

TEST(TuningTable, TheOneThatComesWithTheLibraryIsRight) {
  unsetenv("OCTET_TUNING");
  const auto table = TuningTable::Default();
  EXPECT_TRUE(table.ok()) << table.status();
}

// ---- what Create makes of it

class TunedTest : public NodeTest {
 protected:
  void TearDown() override {
    unsetenv("OCTET_TUNING");
    NodeTest::TearDown();
  }
  void Use(const std::string& text) {
    path_ = testing::TempDir() + "octet_tuning_test.json";
    std::ofstream(path_) << text;
    setenv("OCTET_TUNING", path_.c_str(), 1);
  }
  // An entry for `config` on this node.
  TuningEntry Entry(const EpConfig& config, const Tuning& tuning) {
    return {.key = TuningKeyOf(node_->topology(), node_->num_ranks(), config), .tuning = tuning};
  }
  static EpConfig Small() {
    EpConfig config = Config();
    config.num_experts = 8;
    config.topk = 2;
    config.hidden = 64;
    config.max_tokens_per_rank = 16;
    return config;
  }
  absl::StatusOr<Tuning> Chosen(const EpConfig& config, const ExpertParallelOptions& options = {}) {
    const auto ep = ExpertParallel::Create(*node_, config, options);
    if (!ep.ok()) return ep.status();
    return (*ep)->config().tuning;
  }

  std::string path_;
};

TEST_F(TunedTest, CreateTakesWhatWasMeasured) {
  MakeNode(1);
  if (IsSkipped()) return;
  TuningTable table;
  table.Set(Entry(Small(), {.blocks = 4, .send_blocks = 1, .waves_per_block = 2, .row_parts = 5}));
  Use(table.ToJson());
  const absl::StatusOr<Tuning> tuning = Chosen(Small());
  ASSERT_OK(tuning.status());
  EXPECT_EQ(tuning->blocks, 4);
  EXPECT_EQ(tuning->send_blocks, 1);
  EXPECT_EQ(tuning->waves_per_block, 2);
  EXPECT_EQ(tuning->row_parts, 5);
  // Room for what the table asks for, in a heap of the caller's.
  const absl::StatusOr<HeapSize> bytes = ExpertParallel::HeapBytes(Small(), 1);
  ASSERT_OK(bytes.status());
  auto heap = SymmetricHeap::Create(*node_, *bytes);
  ASSERT_OK(heap.status());
  EXPECT_OK(Chosen(Small(), {.heap = heap->get()}).status());

  // Whoever says something about the launch, or does not want it, does not get it.
  EpConfig config = Small();
  config.tuning.waves_per_block = 1;
  EXPECT_NE(Chosen(config)->row_parts, 5);
  EXPECT_NE(Chosen(Small(), {.use_measured_tuning = false})->row_parts, 5);
  config = Small();
  config.max_tokens_per_rank = 32;
  EXPECT_NE(Chosen(config)->row_parts, 5);
  setenv("OCTET_TUNING", "none", 1);
  EXPECT_NE(Chosen(Small())->row_parts, 5);
}

TEST_F(TunedTest, CreateTakesWhatWasMeasuredForHighThroughput) {
  MakeNode(1);
  if (IsSkipped()) return;
  EpConfig config = Small();
  config.strategy = Strategy::kHighThroughput;
  const Tuning tuning = {.blocks = 3,
                         .waves_per_block = 4,
                         .row_parts = 3,
                         .send_waves = 1,
                         .combine_send_waves = 3,
                         .row_copies = RowCopies::kVectors};
  TuningTable table;
  table.Set(Entry(config, tuning));
  Use(table.ToJson());
  const absl::StatusOr<Tuning> chosen = Chosen(config);
  ASSERT_OK(chosen.status());
  EXPECT_EQ(*chosen, tuning);
}

TEST_F(TunedTest, ErrorsNameTheFile) {
  MakeNode(1);
  if (IsSkipped()) return;
  Use("{");
  EXPECT_THAT(std::string(Chosen(Small()).status().message()),
              StartsWith(absl::StrCat("tuning ", path_, " is no JSON: parse error at line 1")));
  EXPECT_EQ(ExpertParallel::HeapBytes(Small(), 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  TuningTable table;
  table.Set(
      Entry(Small(), {.blocks = 100000, .send_blocks = 1, .waves_per_block = 2, .row_parts = 1}));
  Use(table.ToJson());
  EXPECT_THAT(std::string(Chosen(Small()).status().message()),
              HasSubstr(absl::StrCat("tuning ", path_, ": ")));
  setenv("OCTET_TUNING", "/no/such/file", 1);
  EXPECT_EQ(Chosen(Small()).status().message(),
            "cannot read tuning /no/such/file: No such file or directory");
  setenv("OCTET_TUNING", "/tmp", 1);
  EXPECT_THAT(std::string(Chosen(Small()).status().message()),
              HasSubstr("cannot read tuning /tmp"));
}

// ---- calls with a product

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
FusedExpertsConfig Calls() {
  FusedExpertsConfig config;
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
  const auto find = [&](const FusedExpertsConfig& config, FusedCall call = FusedCall::kDispatchGemm,
                        int ranks = 4) {
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
  const auto other = [&](const std::function<void(FusedExpertsConfig&)>& alter) {
    FusedExpertsConfig config = Calls();
    alter(config);
    return find(config).has_value();
  };
  EXPECT_TRUE(other([](FusedExpertsConfig& c) { c.ep.max_tokens_per_rank = 63; }));
  EXPECT_FALSE(other([](FusedExpertsConfig& c) { c.ep.max_tokens_per_rank = 64; }));
  EXPECT_FALSE(other([](FusedExpertsConfig& c) { c.ep.hidden = 512; }));
  EXPECT_FALSE(other([](FusedExpertsConfig& c) { c.intermediate = 48; }));
  EXPECT_FALSE(other([](FusedExpertsConfig& c) { c.activation = GemmActivation::kNone; }));
  EXPECT_FALSE(other([](FusedExpertsConfig& c) { c.ep.dispatch_format = DispatchFormat::kFp8; }));
}

// What was measured for few experts may not fit where there are many.
TEST(FusedTuning, AreForANumberOfExperts) {
  const std::string of_eight =
      absl::StrReplaceAll(kFusedEntry, {{"\"note\"", "\"experts\": 8, \"note\""}});
  absl::StatusOr<TuningTable> table = TuningTable::Parse(FusedFile(of_eight), "f");
  ASSERT_TRUE(table.ok()) << table.status();
  const auto find = [&](int experts) {
    FusedExpertsConfig config = Calls();
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
  FusedExpertsConfig many = Calls();
  many.ep.num_experts = 256;
  for (const FusedExpertsConfig& config : {Calls(), many}) {
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

class TunedGemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    if (!topology.ok() || topology->gpus.empty()) GTEST_SKIP() << "no GPU";
    ASSERT_OK(OCTET_GPU(hipSetDevice(topology->gpus[0].device)));
  }
  void TearDown() override { unsetenv("OCTET_TUNING"); }
  void Use(const std::string& text) {
    std::ofstream(path_) << text;
    setenv("OCTET_TUNING", path_.c_str(), 1);
  }
  // 128 rows per expert.
  static GroupedGemmConfig Small() { return {.experts = 2, .max_rows = 256, .n = 256, .k = 64}; }
  // Returns a name, or the error.
  static std::string Chosen(const GroupedGemmConfig& config) {
    const auto gemm = GroupedGemm::Create(config);
    return gemm.ok() ? std::string(EnumName((*gemm)->tiles())) : gemm.status().ToString();
  }

  const std::string path_ = ::testing::TempDir() + "octet_gemm_tuning_test.json";
};

TEST_F(TunedGemmTest, CreateTakesWhatWasMeasured) {
  setenv("OCTET_TUNING", "none", 1);
  ASSERT_EQ(Chosen(Small()), "wide");
  const absl::StatusOr<std::string> gpu = CurrentGpuName();
  ASSERT_OK(gpu.status());
  TuningTable table;
  table.Set({.key = GemmTuningKeyOf(*gpu, Small()), .tiles = GemmTiles::kFew32});
  Use(table.ToJson());
  EXPECT_EQ(Chosen(Small()), "few32");
  GroupedGemmConfig config = Small();
  config.expected_rows = 65;
  EXPECT_EQ(Chosen(config), "few32");
  config.expected_rows = 129;
  EXPECT_EQ(Chosen(config), "wide");

  // The table does not change a tile shape that is named, nor a config that refuses the table.
  config = Small();
  config.tiles = GemmTiles::kMedium;
  EXPECT_EQ(Chosen(config), "medium");
  config = Small();
  config.use_measured_tuning = false;
  EXPECT_EQ(Chosen(config), "wide");
  config = Small();
  config.activation = GemmActivation::kSwiGlu;
  EXPECT_EQ(Chosen(config), "wide");
}

TEST_F(TunedGemmTest, ErrorsNameTheFile) {
  Use("{");
  EXPECT_THAT(Chosen(Small()),
              HasSubstr(absl::StrCat("tuning ", path_, " is no JSON: parse error at line 1")));
  GroupedGemmConfig config = Small();
  config.tiles = GemmTiles::kWide;
  EXPECT_EQ(Chosen(config), "wide") << "the file is not needed";
}

}  // namespace
}  // namespace octet
