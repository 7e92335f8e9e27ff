// Where the time of a traced product went, from slices made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "octet/trace.h"
#include "runtime/platform/gemm_call.h"
#include "tools/measure/trace/gemm_trace.h"

namespace octet {
namespace {

using device::GemmTrack;
using device::GemmWork;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TraceSlice Slice(int block, GemmTrack track, GemmWork work, double from, double to) {
  return {.block = block,
          .track = static_cast<int>(track),
          .tag = static_cast<uint32_t>(work),
          .start_us = from,
          .duration_us = to - from};
}

TEST(GemmTraceSummaryTest, AddsUpToTheBlocksTime) {
  // Block 2 has no tile. The loading thread of block 0 begins first.
  const std::vector<TraceSlice> slices = {
      Slice(0, GemmTrack::kLoad, GemmWork::kLoad, 0, 40),
      Slice(0, GemmTrack::kMultiply, GemmWork::kWait, 2, 10),
      Slice(0, GemmTrack::kMultiply, GemmWork::kMultiply, 10, 40),
      Slice(0, GemmTrack::kMultiply, GemmWork::kEpilogue, 40, 50),
      Slice(1, GemmTrack::kMultiply, GemmWork::kWait, 1, 11),
      Slice(1, GemmTrack::kMultiply, GemmWork::kMultiply, 11, 81),
      Slice(1, GemmTrack::kMultiply, GemmWork::kEpilogue, 81, 100)};
  const GemmTraceSummary summary = SummarizeGemmTrace(slices, 3);
  EXPECT_EQ(summary.blocks, 3);
  EXPECT_DOUBLE_EQ(summary.span_us, 100);
  ASSERT_THAT(summary.works, SizeIs(4));
  double shares = summary.before + summary.behind;
  for (const GemmWorkSummary& line : summary.works) {
    if (line.track == "multiply") shares += line.share;
  }
  EXPECT_DOUBLE_EQ(shares, 1);
  EXPECT_EQ(summary.works[1].work, "multiply");
  EXPECT_EQ(summary.works[1].slices, 2);
  EXPECT_DOUBLE_EQ(summary.works[1].share, 100.0 / 300);
  EXPECT_DOUBLE_EQ(summary.works[1].median_us, 50);
  EXPECT_EQ(summary.works[3].track, "load");
  EXPECT_DOUBLE_EQ(summary.TotalUs("load", "load"), 40);
  EXPECT_DOUBLE_EQ(summary.before, 3.0 / 300);
  EXPECT_DOUBLE_EQ(summary.behind, 150.0 / 300);
  EXPECT_DOUBLE_EQ(summary.longest_behind_us, 100);

  // 3e8 floating-point operations in 100 us, and in a third of it while all multiply.
  const std::string text = GemmTraceText(summary, 3e8);
  EXPECT_THAT(text, HasSubstr("9 TFLOP/s while all blocks multiply, 3 from start to end"));
  EXPECT_THAT(text, HasSubstr("1.0% lies before a block's first tile, and 50.0% behind"));
}

TEST(GemmTraceSummaryTest, NamesTheLongestTail) {
  const GemmTraceSummary summary =
      SummarizeGemmTrace({Slice(0, GemmTrack::kMultiply, GemmWork::kMultiply, 0, 30),
                          Slice(1, GemmTrack::kMultiply, GemmWork::kMultiply, 0, 40)},
                         2);
  EXPECT_DOUBLE_EQ(summary.longest_behind_us, 10);
  EXPECT_DOUBLE_EQ(summary.behind, 10.0 / 80);
}

TEST(GemmTraceSummaryTest, WithoutSlices) {
  const GemmTraceSummary summary = SummarizeGemmTrace({}, 4);
  EXPECT_EQ(summary.span_us, 0);
  EXPECT_THAT(summary.works, SizeIs(0));
  EXPECT_EQ(summary.TotalUs("multiply", "multiply"), 0);
}

}  // namespace
}  // namespace octet
