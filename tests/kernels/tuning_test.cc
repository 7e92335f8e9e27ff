// Tuning tables: what may stand in them, what they are found by, and that both Creates use them.
#include "kernels/tuning/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "octet/expert_parallel.h"
#include "octet/grouped_gemm.h"
#include "octet/routed_experts.h"
#include "runtime/gpu/gpu_name.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr absl::string_view kEntry =
    R"({"platform": "nvidia", "gpu": "NVIDIA H200", "ranks": 8, "strategy": "direct",
        "rows": [1024, 2047], "row_bytes": [8192, 16383],
        "blocks": 132, "send_blocks": 40, "waves": 8, "row_parts": 2, "note": "measured"})";

constexpr absl::string_view kChoice =
    R"({"platform": "nvidia", "gpu": "NVIDIA H200", "ranks": 8, "strategy": "auto",
        "rows": [1024, 2047], "row_bytes": [8192, 16383], "chosen": "low_latency"})";

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

}  // namespace
}  // namespace octet
