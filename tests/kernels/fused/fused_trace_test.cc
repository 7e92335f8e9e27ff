// Traced calls of RoutedExperts: the same results, and every tile of both products beside the rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/fused/fused_trace.h"
#include "octet/routed_experts.h"
#include "octet/trace.h"
#include "runtime/device/trace_event.h"
#include "runtime/platform/gemm_call.h"
#include "tests/kernels/fused/fused_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tools/workload/step_input.h"

namespace octet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 2;

FusedProblem ProblemOf(Fusion dispatch_gemm, Fusion gemm_combine) {
  FusedProblem problem;
  problem.num_ranks = kRanks;
  problem.bias = true;
  problem.traced_blocks = 160;
  RoutedExpertsConfig& config = problem.config;
  config.ep.strategy = Strategy::kHighThroughput;
  config.ep.num_experts = 3 * kRanks;
  config.ep.topk = 3;
  config.ep.hidden = 1040;  // two passes of the product that combine is fused with
  config.ep.max_tokens_per_rank = 200;
  config.intermediate = 272;
  config.dispatch_gemm = dispatch_gemm;
  config.gemm_combine = gemm_combine;
  return problem;
}

int64_t Nanoseconds(double us) { return std::llround(us * 1e3); }

// The slices of a track follow each other or nest.
void ExpectNested(const std::vector<TraceSlice>& slices) {
  std::map<std::tuple<int, int, int>, std::vector<int64_t>> open;  // ends, the outermost first
  for (const TraceSlice& slice : slices) {
    std::vector<int64_t>& ends = open[{slice.rank, slice.block, slice.track}];
    const int64_t start = Nanoseconds(slice.start_us);
    while (!ends.empty() && ends.back() <= start) ends.pop_back();
    const int64_t end = start + Nanoseconds(slice.duration_us);
    // Times are rounded to a nanosecond, from ticks that may be longer.
    if (!ends.empty()) {
      EXPECT_LE(end, ends.back() + 64) << "block " << slice.block << ", track " << slice.track;
    }
    ends.push_back(end);
  }
}

class FusedTraceTest : public NodeTest,
                       public ::testing::WithParamInterface<std::pair<Fusion, Fusion>> {};

TEST_P(FusedTraceTest, ChangesNoBitAndHasEveryTileOfBothProducts) {
  if (NumGpus() < kRanks) GTEST_SKIP() << kRanks << " ranks on " << NumGpus() << " GPUs";
  const auto [dispatch_gemm, gemm_combine] = GetParam();
  for (const bool fp8 : {false, true}) {
    FusedProblem problem = ProblemOf(dispatch_gemm, gemm_combine);
    if (fp8) problem.config.ep.dispatch_format = DispatchFormat::kFp8;
    SCOPED_TRACE(problem.Text());
    auto harness = FusedHarness::Create(problem);
    ASSERT_OK(harness.status());
    FusedHarness& calls = **harness;
    const StepInput input = calls.Draw({200, 170}, 0.1);
    ASSERT_OK(calls.trace().Clear());
    const auto traced = calls.Fused({input});
    ASSERT_OK(traced.status());
    const auto slices = calls.trace().Collect();
    ASSERT_OK(slices.status());
    EXPECT_EQ(calls.trace().num_dropped(), 0U);
    const auto separate = calls.Separate({input});
    ASSERT_OK(separate.status());
    EXPECT_EQ(FirstDifference(*traced, *separate), "");
    ExpectNested(*slices);

    const std::vector<TraceTag> tags = fused::FusedTraceTags(calls.experts().ep());
    std::vector<std::map<uint32_t, int64_t>> rows(kRanks);  // of each expert, in both products
    std::vector<std::set<absl::string_view>> seen(RoutedExperts::kTraceTracks);
    bool knows_who_was_late = false;
    for (const TraceSlice& slice : *slices) {
      ASSERT_LT(slice.tag, tags.size());
      const TraceTag& tag = tags[slice.tag];
      ASSERT_LT(slice.track, RoutedExperts::kTraceTracks);
      EXPECT_EQ(tag.phase.name == "gemm", slice.track >= fused::kFirstProductTrack) << tag.name;
      seen[static_cast<size_t>(slice.track)].insert(tag.name);
      if (tag.name == "await rows" && slice.detail != device::kNoPeer) {
        EXPECT_TRUE(tag.detail.is_peer);
        EXPECT_LT(slice.detail, kRanks);
        knows_who_was_late = true;
      }
      const auto [row, num_rows, column] = slice.more_details;
      if (tag.name != "multiply" || column != 0) continue;
      rows[static_cast<size_t>(slice.rank)][slice.detail] += num_rows;
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<int32_t>& offsets = (*traced)[0][rank].expert_offsets;
      for (uint32_t expert = 0; expert + 1 < offsets.size(); ++expert) {
        EXPECT_EQ(rows[rank][expert], 2 * (offsets[expert + 1] - offsets[expert]))
            << "rank " << rank << ", expert " << expert;
      }
    }
    const bool fused_dispatch = dispatch_gemm == Fusion::kTiles;
    EXPECT_EQ(knows_who_was_late, fused_dispatch);
    for (const absl::string_view name : {"order", "send rows", "await rows", "fill rows"}) {
      if (fused_dispatch) {
        EXPECT_THAT(seen[0], Contains(name));
      } else {
        EXPECT_THAT(seen[0], Not(Contains(name)));
      }
    }
    if (gemm_combine == Fusion::kNone) {
      EXPECT_THAT(seen[0], Not(Contains("wait pass")));
    } else {
      EXPECT_THAT(seen[0], Contains("wait pass"));
    }
    for (const absl::string_view name : {"combine send", "reduce"}) {
      EXPECT_THAT(seen[0], Contains(name));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fusions, FusedTraceTest,
                         ::testing::Values(std::pair(Fusion::kNone, Fusion::kNone),
                                           std::pair(Fusion::kTiles, Fusion::kNone),
                                           std::pair(Fusion::kNone, Fusion::kTiles),
                                           std::pair(Fusion::kTiles, Fusion::kSerial)),
                         [](const auto& test) {
                           return std::string(EnumName(test.param.first)) + "_" +
                                  std::string(EnumName(test.param.second));
                         });

using FusedTraceRefusalTest = NodeTest;

TEST_F(FusedTraceRefusalTest, RefusesACollectorWithoutTracksForProducts) {
  MakeNode(1);
  if (IsSkipped()) return;
  const auto trace = TraceCollector::Create(*node_, 4, 16, 2);
  ASSERT_OK(trace.status());
  const FusedProblem problem = ProblemOf(Fusion::kNone, Fusion::kNone);
  EXPECT_THAT(
      RoutedExperts::Create(*node_, problem.config, {.trace = trace->get()}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 2 tracks for each block; ")));
}

}  // namespace
}  // namespace octet
