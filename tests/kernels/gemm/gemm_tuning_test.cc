// Tuning tables: grouped products.
#include "kernels/tuning/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "octet/grouped_gemm.h"
#include "runtime/gpu/gpu_name.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// An entry for calls of a strategy.
constexpr absl::string_view kEntry =
    R"({"platform": "nvidia", "gpu": "NVIDIA H200", "ranks": 8, "strategy": "direct",
        "rows": [1024, 2047], "row_bytes": [8192, 16383],
        "blocks": 132, "send_blocks": 40, "waves": 8, "row_parts": 2, "note": "measured"})";

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
  EXPECT_EQ(with("bf16", "fp4"),
            "f: gemm[1]: dtype is \"fp4\"; it must be one of bf16, fp16, fp8, mxfp4, "
            "fp8_mxfp4");
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
