// Memory for fewer rows than a rank can receive: dispatches that just fit, and those that do not,
// which end on all ranks before a row has moved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/high_throughput/high_throughput_fixture.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kExperts = 6;

class CapacityTest : public HighThroughputTest {
 protected:
  // Returns the rows that each rank needs for a step, padding included.
  static std::vector<int> RowsOf(const EpConfig& config, const StepInput& step) {
    const int alignment = config.high_throughput.expert_alignment;
    std::vector<int> of_expert(static_cast<size_t>(config.num_experts), 0);
    for (const StepInput::PerRank& rank : step.ranks) {
      for (const int32_t id : rank.topk_idx) {
        if (id >= 0) ++of_expert[static_cast<size_t>(id)];
      }
    }
    std::vector<int> rows(kRanks, 0);
    for (size_t e = 0; e < of_expert.size(); ++e) {
      rows[e / (kExperts / kRanks)] += (of_expert[e] + alignment - 1) / alignment * alignment;
    }
    return rows;
  }
  static int Most(const std::vector<int>& rows) { return *std::ranges::max_element(rows); }

  // Returns the rows that all ranks have received.
  std::vector<std::vector<uint8_t>> Rows() {
    std::vector<std::vector<uint8_t>> rows(kRanks);
    EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
      const Received& of = received(rank);
      OCTET_ASSIGN_OR_RETURN(
          rows[static_cast<size_t>(rank.rank())],
          ToHost<uint8_t>(of.x, of.row_bytes * static_cast<size_t>(of.max_rows)));
      return absl::OkStatus();
    }));
    return rows;
  }

  // Dispatches and expects that every rank learns of the sentence by itself.
  void ExpectRefused(const StepInput& step) {
    EXPECT_OK(harness_->Upload(step));
    const std::vector<int> rows = RowsOf(config(), step);
    const auto fullest = std::ranges::max_element(rows) - rows.begin();
    const std::string sentence =
        absl::StrCat("rank ", fullest, " would receive ", Most(rows),
                     " rows in this dispatch; capacity_rows is ", config().capacity_rows,
                     ": raise it, or dispatch fewer tokens in a call");
    std::vector<absl::Status> of_rank(kRanks);
    const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(ep().Dispatch(rank, args(rank)).status());
      of_rank[static_cast<size_t>(rank.rank())] = rank.Synchronize();
      return of_rank[static_cast<size_t>(rank.rank())];
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(sentence)));
    for (const absl::Status& of : of_rank) EXPECT_FALSE(of.ok());
  }
};

// The expert of every choice is on the rank that is to receive most, but for those dropped.
StepInput Toward(StepInput step, int expert) {
  for (StepInput::PerRank& rank : step.ranks) {
    for (size_t i = 0; i < rank.topk_idx.size(); i += 2) {
      if (rank.topk_idx[i] >= 0 && rank.topk_idx[i + 1] != expert) rank.topk_idx[i] = expert;
    }
  }
  return step;
}

// Every way in which rows wait for combine.
std::vector<EpConfig> Variants(EpConfig config) {
  std::vector<EpConfig> variants;
  config.combine_order = CombineOrder::kPerRank;
  config.combine_method = CombineMethod::kPull;
  variants.push_back(config);
  config.high_throughput.expert_alignment = 4;
  variants.push_back(config);
  config.high_throughput.expert_alignment = 1;
  config.dispatch_format = DispatchFormat::kFp8;  // rows of another size than those of combine
  variants.push_back(config);
  config.dispatch_format = DispatchFormat::kSame;
  config.combine_method = CombineMethod::kPush;
  config.combine_order = CombineOrder::kFlat;
  variants.push_back(config);
  return variants;
}

TEST_F(CapacityTest, OneRowMoreThanFitsEndsOnAllRanksAndLosesNothing) {
  for (const EpConfig& variant : Variants(Config(kExperts, 2, 64, 7))) {
    SCOPED_TRACE(absl::StrCat(EnumName(variant.combine_method), ", alignment ",
                              variant.high_throughput.expert_alignment, ", ",
                              EnumName(variant.dispatch_format)));
    MAKE_OR_SKIP(kRanks, variant);
    const StepInput step = Toward(RandomStepOf({7, 3, 5}, 0.2), 2);
    const StepInput few = RandomStepOf({2, 0, 1}, 0.2);
    EpConfig bounded = variant;
    bounded.capacity_rows = Most(RowsOf(variant, step));
    ASSERT_LT(bounded.capacity_rows, variant.max_rows(kRanks));
    MAKE_OR_SKIP(kRanks, bounded);
    RunStep(step);  // exactly reached
    EXPECT_EQ(harness_->received(0).max_rows, bounded.capacity_rows);
    bounded.capacity_rows -= variant.high_throughput.expert_alignment;
    MAKE_OR_SKIP(kRanks, bounded);
    RunStep(few);
    const std::vector<std::vector<uint8_t>> before = Rows();
    ExpectRefused(step);
    EXPECT_EQ(Rows(), before) << "a row has moved";
    RunStep(few);
    ExpectRefused(step);
    ExpectRefused(step);
    RunStep(few);
  }
}

TEST_F(CapacityTest, GraphsGoOnAfterALaunchThatDidNotFit) {
  EpConfig config = Config(kExperts, 2, 64, 6);
  MAKE_OR_SKIP(kRanks, config);
  const StepInput large = Toward(RandomStepOf({6, 6, 6}), 4);
  const StepInput small = RandomStepOf({6, 6, 6}, 0.5);
  config.capacity_rows = Most(RowsOf(config, large)) - 1;
  ASSERT_LE(Most(RowsOf(config, small)), config.capacity_rows);
  MAKE_OR_SKIP(kRanks, config);
  EXPECT_OK(harness_->Upload(small));
  std::vector<std::unique_ptr<Graph>> graphs(kRanks);
  const absl::Status captured = harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(
        Graph graph, Graph::Capture(rank, [&] { return harness_->RunStep(rank, Form::kFused); }));
    graphs[static_cast<size_t>(rank.rank())] = std::make_unique<Graph>(std::move(graph));
    return absl::OkStatus();
  });
  if (absl::IsUnimplemented(captured)) GTEST_SKIP() << captured;
  ASSERT_OK(captured);
  const auto launch = [&] {
    return harness_->node().Run(
        [&](Rank& rank) { return graphs[static_cast<size_t>(rank.rank())]->Launch(rank); });
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(harness_->Upload(small));
    EXPECT_OK(launch());
    EXPECT_OK(harness_->CheckY(small));
    EXPECT_OK(harness_->Upload(large));
    EXPECT_THAT(launch(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 2 would receive ")));
  }
}

TEST_F(CapacityTest, OnlyWhoKnowsAllCountsFirstHasOne) {
  EpConfig config = Config(kExperts, 2, 64, 7);
  config.tuning = {};
  config.capacity_rows = 5;
  config.strategy = Strategy::kAuto;
  MAKE_OR_SKIP(kRanks, config);
  EXPECT_EQ(this->config().strategy, Strategy::kHighThroughput);
  const auto refused = [](const EpConfig& wrong, const std::string& words) {
    EXPECT_THAT(Validate(wrong, kRanks),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  };
  for (const Strategy strategy : {Strategy::kDirect, Strategy::kLowLatency}) {
    config.strategy = strategy;
    refused(config, absl::StrCat("capacity_rows is 5; ", EnumName(strategy), " sends rows before"));
  }
  config.strategy = Strategy::kHighThroughput;
  config.output = Output::kDeduplicated;
  refused(config, "capacity_rows is 5; it needs a row for each choice");
  config.output = Output::kPackedExperts;
  config.capacity_rows = -1;
  refused(config, "capacity_rows is -1; it must be 0 or a number of rows");
}

}  // namespace
}  // namespace octet
