// A step's results that nodes tell to each other.
#include "tools/measure/step/step_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace octet {
namespace {

RankStepResult SomeRank() {
  RankStepResult rank;
  rank.num_tokens = 1;
  rank.rows_sent = 2;
  rank.rows_received = 3;
  rank.logical_bytes = 4;
  rank.dispatch_logical_bytes = 5;
  rank.wire_bytes = int64_t{1} << 60;
  rank.dispatch_wire_bytes = 7;
  rank.rail_rows = 8;
  rank.rail_bytes = 9;
  rank.dispatch_rail_bytes = 10;
  rank.all_us = 0.1;
  rank.phase_us = {1.1, 2.2, 3.3, 4.4, 5.5};
  rank.call_us = {1e-300, 7.7};
  rank.verification = {.bitwise = false,
                       .within_tolerance = false,
                       .max_error = std::numeric_limits<double>::infinity(),
                       .wrong_rows = 11,
                       .wrong_tokens = 12,
                       .first = "node 1: \"y\" of token 3\nis wrong"};
  return rank;
}

TEST(StepTextTest, IsReadAgainToTheBit) {
  StepResult step;
  step.all_us = 1.0 / 3;
  step.wall_us = 2.0 / 3;
  step.ranks = {RankStepResult(), SomeRank()};
  const std::string text = StepResultText(step);
  const absl::StatusOr<StepResult> read = ParseStepResult(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->all_us, step.all_us);
  EXPECT_EQ(read->wall_us, step.wall_us);
  ASSERT_EQ(read->ranks.size(), 2U);
  const RankStepResult& rank = read->ranks[1];
  const RankStepResult want = SomeRank();
  EXPECT_EQ(rank.num_tokens, want.num_tokens);
  EXPECT_EQ(rank.rows_sent, want.rows_sent);
  EXPECT_EQ(rank.rows_received, want.rows_received);
  EXPECT_EQ(rank.logical_bytes, want.logical_bytes);
  EXPECT_EQ(rank.dispatch_logical_bytes, want.dispatch_logical_bytes);
  EXPECT_EQ(rank.wire_bytes, want.wire_bytes);
  EXPECT_EQ(rank.dispatch_wire_bytes, want.dispatch_wire_bytes);
  EXPECT_EQ(rank.rail_rows, want.rail_rows);
  EXPECT_EQ(rank.rail_bytes, want.rail_bytes);
  EXPECT_EQ(rank.dispatch_rail_bytes, want.dispatch_rail_bytes);
  EXPECT_EQ(rank.all_us, want.all_us);
  EXPECT_EQ(rank.phase_us, want.phase_us);
  EXPECT_EQ(rank.call_us, want.call_us);
  EXPECT_EQ(rank.verification.bitwise, want.verification.bitwise);
  EXPECT_EQ(rank.verification.within_tolerance, want.verification.within_tolerance);
  EXPECT_EQ(rank.verification.max_error, want.verification.max_error);
  EXPECT_EQ(rank.verification.wrong_rows, want.verification.wrong_rows);
  EXPECT_EQ(rank.verification.wrong_tokens, want.verification.wrong_tokens);
  EXPECT_EQ(rank.verification.first, want.verification.first);
  EXPECT_TRUE(read->ranks[0].verification.bitwise);
}

TEST(StepTextTest, OtherTextIsRefused) {
  StepResult step;
  step.ranks = {SomeRank()};
  const std::string good = StepResultText(step);
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string("[[1]]"),
        good.substr(0, good.size() - 1), good.substr(0, good.rfind(',')) + "]]",
        good.substr(0, good.size() - 2) + ",1]]"}) {
    EXPECT_EQ(ParseStepResult(text).status().code(), absl::StatusCode::kInternal) << text;
  }
}

}  // namespace
}  // namespace octet
