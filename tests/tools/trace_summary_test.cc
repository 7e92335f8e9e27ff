// Where the time went and who waited for whom, from slices made up here.
#include "tools/measure/trace/trace_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/ep/trace_phases.h"
#include "runtime/device/trace_event.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kWork = 0;
constexpr uint32_t kWait = 1;
constexpr uint32_t kReduce = 2;
constexpr std::array<TraceTag, 4> kTags = {
    {{.name = "work", .phase = {"send"}},
     {.name = "wait row", .phase = {"receive"}, .detail = kTracePeer, .waits = true},
     {.name = "reduce", .phase = {"receive"}, .detail = {"row"}},
     {.name = "never", .phase = {"unseen"}}}};

TraceSlice Slice(int rank, int block, uint32_t tag, uint32_t detail, double us) {
  return {.rank = rank, .block = block, .tag = tag, .detail = detail, .duration_us = us};
}

// Two steps of two ranks: block 0 sends, blocks 1 and 2 receive.
std::vector<TraceSlice> Slices() {
  return {
      Slice(0, 0, kWork, 0, 4),   Slice(0, 0, kWork, 0, 6),    Slice(1, 0, kWork, 0, 30),
      Slice(0, 1, kWait, 1, 16),  Slice(0, 1, kReduce, 77, 4), Slice(0, 2, kWait, 1, 8),
      Slice(0, 2, kWait, 0, 4),   Slice(1, 1, kWait, 0, 2),    Slice(1, 1, kReduce, 1, 24),
      Slice(1, 2, kReduce, 1, 2), Slice(1, 1, kWait, ~0U, 12), Slice(0, 5, 99, 1, 1000),
  };
}

TEST(TraceSummary, Phases) {
  const TraceSummary summary = SummarizeTrace(Slices(), kTags, 2, 2);
  ASSERT_THAT(summary.phases, SizeIs(2));
  const TracePhaseSummary& send = summary.phases[0];
  EXPECT_EQ(send.name, "send");
  EXPECT_EQ(send.blocks, 2);
  EXPECT_EQ(send.total_us, 40);
  EXPECT_EQ(send.waiting, 0);
  EXPECT_EQ(send.median_us, 10);  // blocks of 5 and 15 µs a step
  EXPECT_EQ(send.slowest_rank, 1);
  EXPECT_EQ(send.slowest_rank_us, 15);
  ASSERT_THAT(send.tags, SizeIs(1));
  EXPECT_EQ(send.tags[0].events, 3);
  EXPECT_EQ(send.tags[0].median_us, 6);
  EXPECT_EQ(send.tags[0].p99_us, 30);
  EXPECT_DOUBLE_EQ(send.tags[0].total_us, 40);

  const TracePhaseSummary& receive = summary.phases[1];
  EXPECT_EQ(receive.total_us, 72);
  EXPECT_DOUBLE_EQ(receive.waiting, 42.0 / 72);
  EXPECT_EQ(receive.slowest_rank, 1);  // 38 and 2 of two steps: 10 a block; rank 0: 8
  EXPECT_EQ(receive.slowest_rank_us, 10);
  EXPECT_EQ(receive.slowest_block_rank, 1);
  EXPECT_EQ(receive.slowest_block, 1);
  EXPECT_EQ(receive.slowest_block_us, 19);
  ASSERT_THAT(receive.tags, SizeIs(2));
  EXPECT_TRUE(receive.tags[0].waits);
  EXPECT_FALSE(receive.tags[1].waits);
}

TEST(TraceSummary, WhoWaitedForWhom) {
  const TraceSummary summary = SummarizeTrace(Slices(), kTags, 2, 2);
  // Of rank 0 two blocks waited, 24 µs for rank 1 and 4 for its own rows; of rank 1 one.
  EXPECT_THAT(summary.waited_us, ElementsAre(ElementsAre(1, 6), ElementsAre(1, 0)));
  EXPECT_THAT(summary.waited_for_nobody_us, ElementsAre(0, 6));
}

TEST(TraceSummary, KernelsOfTheSlowestRank) {
  constexpr std::array<TraceTag, 2> kCalls = {
      {{.name = "send", .phase = kDispatchSend}, {.name = "sum", .phase = kCombineReceive}}};
  const std::vector<TraceSlice> slices = {
      {.rank = 0, .block = 0, .tag = 0, .start_us = 3, .duration_us = 2},
      {.rank = 0, .block = 1, .tag = 0, .start_us = 1, .duration_us = 1},    // 1 .. 5
      {.rank = 1, .block = 0, .tag = 0, .start_us = 10, .duration_us = 3},   // 10 .. 13
      {.rank = 1, .block = 0, .tag = 1, .start_us = 20, .duration_us = 7},   // 20 .. 27
      {.rank = 0, .block = 0, .tag = 9, .start_us = 0, .duration_us = 100},  // nobody's
  };
  const KernelTimes times = TimeKernels(slices, kCalls, 2);
  EXPECT_DOUBLE_EQ(times.dispatch_us, 4);
  EXPECT_DOUBLE_EQ(times.combine_us, 7);
  EXPECT_LE(TimeKernels({}, kCalls, 2).dispatch_us, 0);
}

TEST(TraceSummary, Budget) {
  constexpr std::array<TraceTag, 6> kCalls = {
      {{.name = "route", .phase = kDispatchSend},
       {.name = "send", .phase = kDispatchSend},
       {.name = "wait counts", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
       {.name = "wait row", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
       {.name = "copy", .phase = kDispatchReceive},
       {.name = "reduce", .phase = kCombineReceive}}};
  const auto slice = [](int rank, uint32_t tag, double from, double to) {
    return TraceSlice{.rank = rank, .tag = tag, .start_us = from, .duration_us = to - from};
  };
  const std::vector<TraceSlice> slices = {
      slice(0, 0, 10, 12), slice(0, 1, 12, 15), slice(0, 1, 12, 16), slice(0, 2, 10, 14),
      slice(0, 3, 14, 21), slice(0, 4, 20, 25), slice(0, 5, 27, 30), slice(0, 9, 0, 90),
      slice(1, 1, 11, 18), slice(1, 4, 12, 80),  // another rank, which sends for longer
  };
  const LatencyBudget budget = BudgetOf(slices, kCalls, 0, 24);
  EXPECT_EQ(BudgetText(budget),
            "#   dispatch  launch 4.0 | route 2.0 | send 4.0 | wait 2.0 | link 3.0 | copy 4.0 | "
            "together 19.0\n"
            "#   combine   launch 2.0 | reduce 3.0 | together 5.0\n");
  EXPECT_EQ(BudgetText(BudgetOf({}, kCalls, 0, 24)), "");
}

TEST(TraceSummary, BudgetOfRowsThatCameBeforeAllHadSent) {
  constexpr std::array<TraceTag, 3> kCalls = {
      {{.name = "send", .phase = kDispatchSend},
       {.name = "wait", .phase = kDispatchReceive, .waits = true},
       {.name = "combine send", .phase = kCombineSend}}};
  const std::vector<TraceSlice> slices = {
      {.rank = 0, .tag = 0, .start_us = 0, .duration_us = 5},
      {.rank = 0, .tag = 1, .start_us = 0, .duration_us = 8},
      {.rank = 1, .tag = 0, .start_us = 0, .duration_us = 9},
      {.rank = 0, .tag = 2, .start_us = 8, .duration_us = 1},
  };
  EXPECT_EQ(BudgetText(BudgetOf(slices, kCalls, 0, 9)),
            "#   dispatch  launch 0.0 | send 5.0 | wait 3.0 | link 0.0 | together 8.0\n"
            "#   combine   launch 0.0 | combine send 1.0 | together 1.0\n");
}

TEST(TraceSummary, MediansOfBudgets) {
  const auto budget = [](double launch, double send) {
    return LatencyBudget{.dispatch = {{"launch", launch}, {"send", send}}, .combine = {}};
  };
  const std::vector<LatencyBudget> steps = {budget(5, 7), {}, budget(1, 9), budget(4, 8)};
  EXPECT_EQ(BudgetText(MedianBudget(steps)),
            "#   dispatch  launch 4.0 | send 8.0 | together 12.0\n");
}

TEST(TraceSummary, OfNothing) {
  const TraceSummary summary = SummarizeTrace({}, kTags, 2, 1);
  EXPECT_THAT(summary.phases, IsEmpty());
  EXPECT_THAT(summary.waited_us, ElementsAre(ElementsAre(0, 0), ElementsAre(0, 0)));
}

TEST(TraceSummary, AsText) {
  const std::string text = TraceSummaryText(SummarizeTrace(Slices(), kTags, 2, 2));
  EXPECT_THAT(text, HasSubstr("       72.0     8.00              58.3  1 (10.0)     1/1 (19.0)\n"
                              "  wait row                  5       42.0     8.00    16.00"
                              "     58.3\n"));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), kTextWidth);
  }
  EXPECT_THAT(text, HasSubstr("#            0        1        -\n"
                              "    0     1.00     6.00     0.00\n"
                              "    1     1.00     0.00     6.00\n"));
}

TEST(TraceSummary, WaitsOfManyRanksTakeSeveralTables) {
  const std::string text = TraceSummaryText(SummarizeTrace(Slices(), kTags, 16, 2));
  std::vector<size_t> columns;  // of rank 0's lines
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), kTextWidth) << line;
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (!cells.empty() && cells[0] == "0") columns.push_back(cells.size() - 1);
  }
  EXPECT_THAT(columns, ElementsAre(10, 7));
}

}  // namespace
}  // namespace octet
