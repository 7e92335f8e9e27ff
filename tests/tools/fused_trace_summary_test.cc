// What ranks did at the same time, from slices made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "octet/trace.h"
#include "tools/measure/trace/fused_trace.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

enum Tag : uint32_t { kLayout, kSend, kAwait, kSendBack, kGemmWait, kMultiply };

const std::vector<TraceTag>& Tags() {
  constexpr TracePhase kGemm = {.name = "gemm"};
  static const auto* const kTags = new std::vector<TraceTag>{
      {.name = "layout", .phase = {"layout", TraceCall::kDispatch, TraceHalf::kOther}},
      {.name = "send", .phase = {"send", TraceCall::kDispatch, TraceHalf::kSend}},
      {.name = "await",
       .phase = {"receive", TraceCall::kDispatch, TraceHalf::kReceive},
       .waits = true},
      {.name = "combine send", .phase = {"combine", TraceCall::kCombine, TraceHalf::kSend}},
      {.name = "wait", .phase = kGemm, .waits = true},
      {.name = "multiply", .phase = kGemm}};
  return *kTags;
}

TraceSlice Slice(int rank, int block, Tag tag, double from, double to) {
  return {.rank = rank,
          .block = block,
          .track = tag == kGemmWait || tag == kMultiply ? 1 : 0,
          .tag = tag,
          .start_us = from,
          .duration_us = to - from};
}

TEST(FusedTraceSummaryTest, CountsWhatBlocksOfARankDoAtTheSameTime) {
  const std::vector<TraceSlice> slices = {
      Slice(0, 0, kLayout, 0, 10),    Slice(0, 0, kSend, 10, 20),  Slice(0, 1, kSend, 15, 30),
      Slice(0, 2, kAwait, 0, 100),    Slice(0, 1, kSend, 50, 60),  Slice(0, 0, kGemmWait, 20, 25),
      Slice(0, 0, kMultiply, 25, 40),  // beside the second send, for 5 us
      Slice(0, 1, kMultiply, 30, 50),  // touches sends, but is beside none
      Slice(0, 2, kMultiply, 58, 90),  // beside the third one, for 2 us
      Slice(1, 0, kSend, 0, 5),       Slice(1, 0, kMultiply, 5, 7)};
  const std::vector<FusedOverlap> overlaps = OverlapOf(slices, Tags(), 2);
  ASSERT_THAT(overlaps, SizeIs(2));
  EXPECT_DOUBLE_EQ(overlaps[0].rows_us, 30);
  EXPECT_DOUBLE_EQ(overlaps[0].multiply_us, 57);
  EXPECT_DOUBLE_EQ(overlaps[0].both_us, 7);
  EXPECT_EQ(overlaps[0].tiles, 3);
  EXPECT_EQ(overlaps[0].tiles_beside, 2);
  EXPECT_DOUBLE_EQ(overlaps[1].rows_us, 5);
  EXPECT_DOUBLE_EQ(overlaps[1].multiply_us, 2);
  EXPECT_DOUBLE_EQ(overlaps[1].both_us, 0);
  EXPECT_EQ(overlaps[1].tiles_beside, 0);
}

TEST(FusedTraceSummaryTest, TheDispatchBeforeACombineIsNotPartOfTheCall) {
  FusedTrace trace;
  trace.tags = Tags();
  trace.slices = {Slice(0, 0, kSend, 0, 10), Slice(0, 0, kMultiply, 40, 50),
                  Slice(0, 1, kSendBack, 45, 70)};
  trace.options.operation = FusedCall::kGemmCombine;
  const std::vector<TraceSlice> slices = SlicesOfCall(trace);
  ASSERT_THAT(slices, SizeIs(2));
  EXPECT_DOUBLE_EQ(slices[0].start_us, 0);
  EXPECT_DOUBLE_EQ(slices[1].start_us, 5);
  trace.options.run.workload.num_ranks = 1;
  const std::string text = FusedTraceText(trace, slices);
  EXPECT_THAT(text, HasSubstr("    0      25.0      10.0       5.0       1       1\n"));

  trace.options.operation = FusedCall::kDispatchGemm;
  EXPECT_THAT(SlicesOfCall(trace), SizeIs(3));
}

}  // namespace
}  // namespace octet
