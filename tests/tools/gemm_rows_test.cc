// Which rows the flags of `octet gemm` stand for.
#include "tools/commands/gemm_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/commands/command_line.h"
#include "tools/commands/run_flags.h"
#include "tools/support/npy.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

using Rows = std::vector<int32_t>;

absl::StatusOr<Rows> Parse(const std::vector<std::string>& args) {
  GemmFlags gemm;
  RunSpec run;
  CommandLine line;
  AddGemmRowsFlags(line, gemm, run);
  AddFlags(line, run, {"seed"});
  if (absl::Status status = line.Parse(args); !status.ok()) return status;
  return ResolveGemmRows(line, gemm, run);
}

Rows RowsOf(const std::vector<std::string>& args) {
  const absl::StatusOr<Rows> rows = Parse(args);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.value_or(Rows());
}

std::string Refusal(const std::vector<std::string>& args) {
  const absl::Status status = Parse(args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(GemmRowsTest, NumbersAndLists) {
  EXPECT_THAT(RowsOf({}), ElementsAre(64, 64, 64, 64, 64, 64, 64, 64));
  EXPECT_THAT(RowsOf({"--rows=7"}), ElementsAre(7));
  EXPECT_THAT(RowsOf({"--rows=7", "--experts=3"}), ElementsAre(7, 7, 7));
  EXPECT_THAT(RowsOf({"--rows=512,0,2x64"}), ElementsAre(512, 0, 64, 64));
  EXPECT_THAT(RowsOf({"--rows=512,0,2x64", "--experts=4"}), ElementsAre(512, 0, 64, 64));
  EXPECT_THAT(RowsOf({"--rows=2x64", "--experts=2"}), ElementsAre(64, 64));
}

TEST(GemmRowsTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Refusal({"--rows=5,6", "--experts=3"}),
            "--experts=3 does not agree with --rows, which lists 2");
  EXPECT_EQ(Refusal({"--rows=2x5", "--experts=3"}),
            "--experts=3 does not agree with --rows, which lists 2");
  EXPECT_EQ(Refusal({"--rows=5,x"}), "--rows has 'x', which is neither N nor LxN");
  EXPECT_EQ(Refusal({"--rows=-1"}), "--rows has '-1', which is neither N nor LxN");
  EXPECT_EQ(Refusal({"--rows=x5"}), "--rows has 'x5', which is neither N nor LxN");
  EXPECT_EQ(Refusal({"--rows=257x1"}), "--rows has '257x1', and a GPU has 1 to 256 experts");
  EXPECT_EQ(Refusal({"--rows=0x1"}), "--rows has '0x1', and a GPU has 1 to 256 experts");
  EXPECT_EQ(Refusal({"--rows=99999999999999999999x1"}),
            "--rows has '99999999999999999999x1', and a GPU has 1 to 256 experts");
  EXPECT_EQ(Refusal({"--rows=8x2147483648"}),
            "--rows has '8x2147483648', and an expert has at most 2147483647 rows");
  EXPECT_EQ(Refusal({"--rows=5", "--experts=0"}), "--experts=0 is not from 1 to 256");
  EXPECT_EQ(Refusal({"--rows=5", "--experts=257"}), "--experts=257 is not from 1 to 256");
  EXPECT_EQ(Refusal({"--rows=200x5,200x5"}), "400 experts are more than the 256 of a GPU at most");
  EXPECT_EQ(Refusal({"--rows=5", "--topk=2"}), "--topk goes with --rows=routing only");
  EXPECT_EQ(Refusal({"--rows=5", "--drop=0.5"}), "--drop goes with --rows=routing only");
}

TEST(GemmRowsTest, RoutingWhoseRowsAreKnown) {
  // Every token chooses every expert; none does; all choose expert 0.
  const std::vector<std::string> base = {"--rows=routing", "--ranks=4", "--experts=8",
                                         "--tokens=5,6,7,1000"};
  const auto with = [&base](std::vector<std::string> more) {
    more.insert(more.end(), base.begin(), base.end());
    return more;
  };
  EXPECT_THAT(RowsOf(with({"--topk=8"})), ElementsAre(1018, 1018));
  EXPECT_THAT(RowsOf(with({"--topk=2", "--drop=1"})), ElementsAre(0, 0));
  EXPECT_THAT(RowsOf(with({"--topk=2", "--routing=one_expert"})), ElementsAre(1018, 0));
}

TEST(GemmRowsTest, UniformRoutingIsEvenAndZipfIsNot) {
  const std::vector<std::string> uniform = {"--rows=routing", "--ranks=2", "--experts=16",
                                            "--topk=4", "--tokens=512"};
  const Rows even = RowsOf(uniform);
  EXPECT_THAT(even, SizeIs(8));
  // 1024 tokens with 4 of 16: 256 for each expert, with a standard deviation of 14.
  EXPECT_THAT(even, Each(::testing::AllOf(::testing::Gt(170), ::testing::Lt(342))));
  std::vector<std::string> zipf = uniform;
  zipf.emplace_back("--routing=zipf:1.5");
  const Rows uneven = RowsOf(zipf);
  EXPECT_GT(*std::max_element(uneven.begin(), uneven.end()),
            3 * *std::min_element(uneven.begin(), uneven.end()));
}

TEST(GemmRowsTest, TheSeedDrawsTheRouting) {
  const auto seeded = [](int seed) {
    return RowsOf({"--rows=routing", "--ranks=2", "--experts=16", "--topk=4", "--tokens=64",
                   absl::StrCat("--seed=", seed)});
  };
  EXPECT_EQ(seeded(1), seeded(1));
  EXPECT_THAT(seeded(1), Not(seeded(2)));
}

TEST(GemmRowsTest, RecordedRouting) {
  const std::string path = ::testing::TempDir() + "/gemm_rows.npy";
  // Two ranks of three tokens: [2, 3, 2].
  const std::vector<int32_t> choices = {0, 1, 1, 2, 3, 0, 1, -1, 0, 1, 2, 3};
  ASSERT_TRUE(WriteNpy(path, NpyType::kInt32, {2, 3, 2}, choices.data()).ok());
  EXPECT_THAT(RowsOf({"--rows=routing", "--ranks=2", "--experts=4", "--routing=file:" + path}),
              ElementsAre(3, 4));
}

TEST(GemmRowsTest, RefusesARoutingThatNoRunCouldHave) {
  const auto refusal = [](const std::string& flag) {
    return Refusal({"--rows=routing", "--ranks=4", "--experts=8", "--topk=2", "--tokens=4", flag});
  };
  EXPECT_THAT(Refusal({"--rows=routing"}), HasSubstr("--rows=routing needs --ranks"));
  EXPECT_THAT(refusal("--ranks=17"), HasSubstr("--ranks=17 is not from 1 to 16"));
  EXPECT_THAT(refusal("--ranks=3"), HasSubstr("divisible by the 3 ranks"));
  EXPECT_THAT(refusal("--topk=9"), HasSubstr("topk is 9"));
  EXPECT_THAT(refusal("--tokens=-1"), HasSubstr("is to have -1 tokens"));
  EXPECT_THAT(refusal("--tokens=70000"), HasSubstr("max_tokens_per_rank is 70000"));
  EXPECT_THAT(refusal("--routing=carrier"), HasSubstr("routing 'carrier' is not one of"));
  EXPECT_EQ(Refusal({"--rows=routing", "--ranks=2", "--experts=1024", "--topk=2", "--tokens=4"}),
            "512 experts are more than the 256 of a GPU at most");
}

}  // namespace
}  // namespace octet
