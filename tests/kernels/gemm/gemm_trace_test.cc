// Traced products: the same results, and a slice for what each block does with each tile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gemm/gemm_trace_tags.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/product_params.h"
#include "octet/grouped_gemm.h"
#include "octet/trace.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/platform/gemm_call.h"
#include "tests/support/gemm_problem.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr GemmTiles kEveryTiles[] = {GemmTiles::kWide, GemmTiles::kMedium, GemmTiles::kFew64,
                                     GemmTiles::kFew32, GemmTiles::kFew16};
constexpr int kBlocks = 6;
constexpr int kMultiplyTrack = static_cast<int>(device::GemmTrack::kMultiply);
constexpr auto kMultiply = static_cast<uint32_t>(device::GemmWork::kMultiply);

// Expert, first row, rows, column.
using Tile = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

std::set<Tile> TilesOf(const GemmProblem& p, GemmTiles tiles) {
  const GroupedGemmTileShape shape = TileShapeOf(VariantOf(p.config, tiles));
  std::set<Tile> found;
  for (int expert = 0; expert < p.config.experts; ++expert) {
    for (int row = 0; row < p.counts[expert]; row += shape.rows) {
      const int rows = std::min(shape.rows, p.counts[expert] - row);
      for (int column = 0; column < p.config.n; column += shape.columns) {
        found.emplace(expert, p.offsets[expert] + row, rows, column);
      }
    }
  }
  return found;
}

int64_t Nanoseconds(double us) { return std::llround(us * 1e3); }

// Slices of a track follow one another; `slices` as Collect() orders them.
void ExpectNoOverlap(const std::vector<TraceSlice>& slices) {
  std::map<std::pair<int, int>, int64_t> ends;  // by block and track
  for (const TraceSlice& slice : slices) {
    int64_t& end = ends[{slice.block, slice.track}];
    EXPECT_GE(Nanoseconds(slice.start_us), end) << "block " << slice.block;
    EXPECT_GE(slice.duration_us, 0);
    end = Nanoseconds(slice.start_us) + Nanoseconds(slice.duration_us);
  }
}

class GemmTraceTest : public NodeTest {
 protected:
  void SetUp() override {
    MakeNode(1);
    if (IsSkipped()) return;
    ASSERT_OK(OCTET_GPU(hipSetDevice(node_->topology().gpus[0].device)));
  }

  // Enough blocks for whatever kBlocks is rounded up to.
  void MakeTrace(int events_per_track, int tracks = GroupedGemm::kTraceTracks) {
    auto trace = TraceCollector::Create(*node_, 2 * kBlocks, events_per_track, tracks);
    ASSERT_OK(trace.status());
    trace_ = *std::move(trace);
  }

  // Returns the output of a product that is traced if `trace` is given.
  static absl::StatusOr<std::vector<uint16_t>> Compute(const GemmProblem& p,
                                                       TraceCollector* trace) {
    OCTET_ASSIGN_OR_RETURN(GemmOnGpu gpu, GemmOnGpu::Make(p));
    OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> gemm,
                           GroupedGemm::Create(p.config, {.trace = trace}));
    EXPECT_GE(gemm->blocks(), kBlocks);
    OCTET_RETURN_IF_ERROR(gemm->Run(gpu.args(), nullptr));
    return gpu.Out();
  }

  std::unique_ptr<TraceCollector> trace_;  // gone before the node
};

GemmProblem ProblemOf(const GroupedGemmConfig& config, GemmTiles tiles) {
  GemmProblem p =
      MakeGemmProblem(config, {130, 0, 65, 3}, {.padding = 5, .bias = true, .row_scale = true});
  p.config.tiles = tiles;
  p.config.blocks = kBlocks;
  return p;
}

TEST_F(GemmTraceTest, ChangesNoBitAndHasEveryTileOnce) {
  if (IsSkipped()) return;
  MakeTrace(1024);
  for (const GemmFormat format : {GemmFormat::kSame, GemmFormat::kFp8}) {
    for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
      for (const GemmTiles tiles : kEveryTiles) {
        const GemmProblem p =
            ProblemOf({.n = 272, .k = 144, .format = format, .activation = activation}, tiles);
        SCOPED_TRACE(p.Text());
        const auto plain = Compute(p, nullptr);
        ASSERT_OK(plain.status());
        ASSERT_OK(trace_->Clear());
        const auto traced = Compute(p, trace_.get());
        ASSERT_OK(traced.status());
        EXPECT_EQ(*plain, *traced);

        const auto slices = trace_->Collect();
        ASSERT_OK(slices.status());
        EXPECT_EQ(trace_->num_dropped(), 0U);
        ExpectNoOverlap(*slices);
        std::vector<Tile> multiplied;
        std::set<uint32_t> tags;
        for (const TraceSlice& slice : *slices) {
          ASSERT_LT(slice.tag, GemmTraceTags().size());
          tags.insert(slice.tag);
          const auto& more = slice.more_details;
          if (slice.tag != kMultiply) continue;
          EXPECT_EQ(slice.track, kMultiplyTrack);
          multiplied.emplace_back(slice.detail, more[0], more[1], more[2]);
        }
        std::sort(multiplied.begin(), multiplied.end());
        const std::set<Tile> expected = TilesOf(p, tiles);
        EXPECT_EQ(multiplied, std::vector<Tile>(expected.begin(), expected.end()));
        EXPECT_EQ(tags.count(static_cast<uint32_t>(device::GemmWork::kWait)), 1U);
      }
    }
  }
}

TEST_F(GemmTraceTest, GoesOnInTheNextLaunch) {
  if (IsSkipped()) return;
  MakeTrace(1024);
  const GemmProblem p = ProblemOf({.n = 272, .k = 144}, GemmTiles::kFew32);
  std::vector<size_t> sizes;
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(Compute(p, trace_.get()).status());
    const auto slices = trace_->Collect();
    ASSERT_OK(slices.status());
    ExpectNoOverlap(*slices);
    sizes.push_back(slices->size());
  }
  EXPECT_EQ(sizes[1], 2 * sizes[0]);
}

TEST_F(GemmTraceTest, CountsWhatDoesNotFit) {
  if (IsSkipped()) return;
  const GemmProblem p = ProblemOf({.n = 1040, .k = 144}, GemmTiles::kFew16);
  MakeTrace(4096);
  ASSERT_OK(Compute(p, trace_.get()).status());
  const auto all = trace_->Collect();
  ASSERT_OK(all.status());
  EXPECT_EQ(trace_->num_dropped(), 0U);

  constexpr int kFit = 3;
  MakeTrace(kFit);
  const auto plain = Compute(p, nullptr);
  ASSERT_OK(plain.status());
  const auto traced = Compute(p, trace_.get());
  ASSERT_OK(traced.status());
  EXPECT_EQ(*plain, *traced);
  const auto slices = trace_->Collect();
  ASSERT_OK(slices.status());
  EXPECT_EQ(slices->size() + trace_->num_dropped(), all->size());
  EXPECT_GT(trace_->num_dropped(), 0U);
  std::map<std::pair<int, int>, int> kept;
  for (const TraceSlice& slice : *slices) ++kept[{slice.block, slice.track}];
  for (const auto& [track, slices_kept] : kept) EXPECT_LE(slices_kept, kFit);
}

TEST_F(GemmTraceTest, RecordsNothingOfOtherProducts) {
  if (IsSkipped()) return;
  MakeTrace(64);
  ASSERT_OK(Compute(ProblemOf({.n = 64, .k = 64}, GemmTiles::kWide), nullptr).status());
  const auto slices = trace_->Collect();
  ASSERT_OK(slices.status());
  EXPECT_THAT(*slices, IsEmpty());
}

TEST_F(GemmTraceTest, RefusesACollectorThatDoesNotFit) {
  if (IsSkipped()) return;
  const GroupedGemmConfig config = {.experts = 1, .max_rows = 8, .n = 8, .k = 8};
  MakeTrace(16, 1);
  EXPECT_THAT(GroupedGemm::Create(config, {.trace = trace_.get()}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("GroupedGemmOptions::trace has 1 tracks for each block")));
  MakeTrace(16);
  for (const int rank : {-1, 1}) {
    EXPECT_THAT(GroupedGemm::Create(config, {.trace = trace_.get(), .rank = rank}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("GroupedGemmOptions::trace has ranks 0 to 0")));
  }
}

}  // namespace
}  // namespace octet
