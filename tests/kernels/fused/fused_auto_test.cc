// What Fusion::kAuto takes from a tuning file changes how fast calls are, never what is allowed:
// neither their arguments, nor the heap and the shared memory that they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/fused/dispatch_gemm.h"
#include "kernels/fused/gemm_combine.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/tuning/tuning.h"
#include "octet/routed_experts.h"
#include "octet/symmetric_heap.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/fused/fused_harness.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/scoped_environment.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What was measured to be the fastest.
struct Measured {
  const char* name;
  Fusion dispatch_gemm;
  Fusion gemm_combine;
};
void PrintTo(const Measured& measured, std::ostream* out) { *out << measured.name; }

constexpr Measured kNothing = {"nothing", Fusion::kNone, Fusion::kNone};
constexpr Measured kBothTiles = {"both_tiles", Fusion::kTiles, Fusion::kTiles};
constexpr Measured kMeasured[] = {kNothing,
                                  {"dispatch_tiles", Fusion::kTiles, Fusion::kNone},
                                  {"combine_tiles", Fusion::kNone, Fusion::kTiles},
                                  {"combine_serial", Fusion::kNone, Fusion::kSerial},
                                  {"combine_epilogue", Fusion::kNone, Fusion::kEpilogue},
                                  kBothTiles};

RoutedExpertsConfig SmallConfig(int num_ranks) {
  RoutedExpertsConfig config;
  config.ep.num_experts = 3 * num_ranks;
  config.ep.topk = 3;
  config.ep.hidden = 136;
  config.ep.max_tokens_per_rank = 9;
  config.ep.strategy = Strategy::kHighThroughput;
  config.ep.combine_order = CombineOrder::kFlat;  // an epilogue is for it alone
  config.intermediate = 24;
  return config;
}

class FusedAutoTest : public NodeTest {
 protected:
  // Lets OCTET_TUNING name a file with `measured` for calls like `config`'s.
  void Measure(const Measured& measured, int num_ranks, const RoutedExpertsConfig& config) {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    ASSERT_OK(topology.status());
    TuningTable table;
    table.Set(
        {.key = FusedTuningKeyOf(*topology, num_ranks, FusedCall::kDispatchGemm, config),
         .choice = {
             .fusion = measured.dispatch_gemm,
             .tuning = {.tiles = GemmTiles::kMedium, .send_percent = 31, .fill_percent = 7}}});
    table.Set({.key = FusedTuningKeyOf(*topology, num_ranks, FusedCall::kGemmCombine, config),
               .choice = {.fusion = measured.gemm_combine,
                          .tuning = {.tiles = GemmTiles::kMedium,
                                     .combine_percent = 44,
                                     .row_parts = kMaxRowParts}}});
    Use(table.ToJson());
  }

  void Use(const std::string& text) {
    std::ofstream(path_) << text;
    tuning_.Set(path_.c_str());
  }

  // Returns the fusions that Create chooses.
  absl::StatusOr<std::pair<Fusion, Fusion>> Chosen(const RoutedExpertsConfig& config,
                                                   const ExpertParallelOptions& options = {}) {
    OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<RoutedExperts> experts,
                           RoutedExperts::Create(*node_, config, options));
    return std::pair(experts->config().dispatch_gemm, experts->config().gemm_combine);
  }

 private:
  const ScopedEnvironment tuning_{"OCTET_TUNING"};
  const std::string path_ = ::testing::TempDir() + "octet_fused_auto_" +
                            std::to_string(std::hash<std::string>()(
                                ::testing::UnitTest::GetInstance()->current_test_info()->name())) +
                            ".json";
};

std::pair<Fusion, Fusion> FusionsOf(const Measured& measured) {
  return {measured.dispatch_gemm, measured.gemm_combine};
}

class FusedAutoMeasuredTest : public FusedAutoTest, public ::testing::WithParamInterface<Measured> {
 protected:
  // Runs one call, then another one with the first one's tokens and what `again` makes of its
  // arguments, given its handle; it must give what separate calls give.
  void ExpectTheSame(const std::function<void(const FusedHarness::CallMemory&,
                                              const DispatchHandle&, DispatchGemmArgs&)>& again) {
    FusedProblem problem;
    problem.num_ranks = 2;
    problem.config = SmallConfig(2);
    problem.config.ep.high_throughput.kept_layouts = 2;
    if (problem.num_ranks > NumGpus()) GTEST_SKIP() << NumGpus() << " GPUs";
    Measure(GetParam(), problem.num_ranks, problem.config);
    if (HasFatalFailure()) return;
    const absl::StatusOr<std::unique_ptr<FusedHarness>> made = FusedHarness::Create(problem);
    ASSERT_OK(made.status());
    FusedHarness& harness = **made;
    RoutedExperts& experts = harness.experts();
    EXPECT_EQ(experts.config().dispatch_gemm, GetParam().dispatch_gemm);
    EXPECT_EQ(experts.config().gemm_combine, GetParam().gemm_combine);
    const StepInput input = harness.Draw({9, 9}, 0.1);
    const StepInput other = harness.Draw({4, 9});
    const absl::StatusOr<FusedOutputs> want = harness.Separate({input});
    ASSERT_OK(want.status());
    std::vector<FusedOutput> got(2);
    std::vector<FusedHarness::CallMemory> memory(4);
    ASSERT_OK(harness.node().Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      OCTET_ASSIGN_OR_RETURN(memory[r], harness.Upload(rank, input));
      OCTET_ASSIGN_OR_RETURN(memory[2 + r], harness.Upload(rank, other));
      OCTET_ASSIGN_OR_RETURN(const Received first, harness.EnqueueFused(rank, memory[r]));
      OCTET_RETURN_IF_ERROR(harness.EnqueueFused(rank, memory[2 + r]).status());
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_RETURN_IF_ERROR(harness.UploadInto(rank, input, memory[r]));
      DispatchGemmArgs args = harness.dispatch_args(rank, memory[r]);
      again(memory[r], first.handle, args);
      OCTET_ASSIGN_OR_RETURN(const FusedReceived received, experts.DispatchGemm(rank, args));
      OCTET_RETURN_IF_ERROR(
          experts.GemmCombine(rank, received, harness.combine_args(rank, memory[r])));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_ASSIGN_OR_RETURN(got[r], harness.Download(rank, memory[r]));
      return harness.EnqueueFused(rank, memory[2 + r]).status();
    }));
    for (const size_t rank : {0, 1}) {
      EXPECT_EQ(got[rank].h, (*want)[0][rank].h) << "rank " << rank;
      EXPECT_EQ(got[rank].y, (*want)[0][rank].y) << "rank " << rank;
    }
    memory.clear();
  }
};

TEST_P(FusedAutoMeasuredTest, TakesCachedLayouts) {
  ExpectTheSame([](const FusedHarness::CallMemory& /*memory*/, const DispatchHandle& handle,
                   DispatchGemmArgs& args) {
    args.dispatch.topk_idx = nullptr;
    args.dispatch.high_throughput.cached = &handle;
  });
}

// The positions that rows have without them.
TEST_P(FusedAutoMeasuredTest, TakesScatterIndices) {
  std::vector<DeviceMemory> indices(2);
  ExpectTheSame([&](const FusedHarness::CallMemory& memory, const DispatchHandle& handle,
                    DispatchGemmArgs& args) {
    const size_t choices = memory.topk_idx.bytes() / sizeof(int32_t);
    const auto experts = ToHost<int32_t>(memory.topk_idx.as<void>(), choices);
    ASSERT_OK(experts.status());
    std::vector<int32_t> index(choices);
    for (size_t i = 0; i < choices; ++i) {  // in token order, as without them
      index[i] = static_cast<int32_t>(std::count(
          experts->begin(), experts->begin() + static_cast<ptrdiff_t>(i), (*experts)[i]));
    }
    absl::StatusOr<DeviceMemory> uploaded = Upload(index);
    ASSERT_OK(uploaded.status());
    DeviceMemory& mine = indices[static_cast<size_t>(handle.rank)];
    mine = *std::move(uploaded);
    args.dispatch.high_throughput.scatter_idx = mine.as<int32_t>();
  });
}

// A heap of the size that HeapBytes tells has room for what is chosen, and one that has room for
// separate kernels alone gets those.
TEST_P(FusedAutoMeasuredTest, FitsIntoTheHeap) {
  MakeNode(1);
  if (IsSkipped()) return;
  const RoutedExpertsConfig config = SmallConfig(1);
  Measure(GetParam(), 1, config);
  if (HasFatalFailure()) return;
  const absl::StatusOr<HeapSize> size = RoutedExperts::HeapBytes(config, 1);
  ASSERT_OK(size.status());
  absl::StatusOr<std::unique_ptr<SymmetricHeap>> heap = SymmetricHeap::Create(*node_, *size);
  ASSERT_OK(heap.status());
  absl::StatusOr<std::pair<Fusion, Fusion>> chosen = Chosen(config, {.heap = heap->get()});
  ASSERT_OK(chosen.status());
  EXPECT_EQ(*chosen, FusionsOf(GetParam()));

  RoutedExpertsConfig untuned = config;
  untuned.dispatch_gemm = Fusion::kNone;
  untuned.gemm_combine = Fusion::kNone;
  const absl::StatusOr<HeapSize> least = RoutedExperts::HeapBytes(untuned, 1);
  ASSERT_OK(least.status());
  const absl::StatusOr<HeapSize> of_ep = ExpertParallel::HeapBytes(config.ep, 1);
  ASSERT_OK(of_ep.status());
  EXPECT_EQ(least->uncached, of_ep->uncached);
  EXPECT_EQ(least->cached, of_ep->cached);
  heap = SymmetricHeap::Create(*node_, *least);
  ASSERT_OK(heap.status());
  chosen = Chosen(config, {.heap = heap->get()});
  ASSERT_OK(chosen.status());
  EXPECT_EQ((*heap)->bytes(), (*heap)->bytes_used());
}

INSTANTIATE_TEST_SUITE_P(All, FusedAutoMeasuredTest, ::testing::ValuesIn(kMeasured),
                         [](const ::testing::TestParamInfo<Measured>& info) {
                           return std::string(info.param.name);
                         });

// What is asked for by name is neither replaced nor allowed more.
TEST_F(FusedAutoTest, ANamedFusionIsNotReplaced) {
  MakeNode(1);
  if (IsSkipped()) return;
  RoutedExpertsConfig config = SmallConfig(1);
  config.dispatch_gemm = Fusion::kTiles;
  const absl::StatusOr<HeapSize> of_ep = ExpertParallel::HeapBytes(config.ep, 1);
  ASSERT_OK(of_ep.status());
  absl::StatusOr<std::unique_ptr<SymmetricHeap>> heap = SymmetricHeap::Create(*node_, *of_ep);
  ASSERT_OK(heap.status());
  EXPECT_THAT(Chosen(config, {.heap = heap->get()}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("symmetric heap")));
  const absl::StatusOr<HeapSize> size = RoutedExperts::HeapBytes(config, 1);
  ASSERT_OK(size.status());
  heap = SymmetricHeap::Create(*node_, *size);
  ASSERT_OK(heap.status());
  EXPECT_OK(Chosen(config, {.heap = heap->get()}).status());
}

TEST_F(FusedAutoTest, HeapBytesRefusesWhatCreateRefuses) {
  RoutedExpertsConfig config = SmallConfig(1);
  config.intermediate = 12;
  EXPECT_THAT(RoutedExperts::HeapBytes(config, 1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("intermediate is 12")));
  config = SmallConfig(1);
  Use("{");
  EXPECT_THAT(RoutedExperts::HeapBytes(config, 1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no JSON")));
}

// Blocks of plain calls that all are resident, while those of a fused call would not be.
TEST_F(FusedAutoTest, AsManyBlocksAsAreResident) {
  MakeNode(2);
  if (IsSkipped()) return;
  FusedProblem problem;
  problem.num_ranks = 2;
  problem.config = SmallConfig(2);
  problem.config.ep.num_experts = 512;
  Tuning& tuning = problem.config.ep.tuning;
  tuning = {.blocks = 32 * node_->topology().gpus[0].num_compute_units, .waves_per_block = 1};
  while (tuning.blocks > 1 && !ExpertParallel::Create(*node_, problem.config.ep).ok()) {
    --tuning.blocks;
  }
  problem.config.dispatch_gemm = Fusion::kTiles;
  for (const Fusion combine : {Fusion::kNone, Fusion::kTiles, Fusion::kSerial, Fusion::kEpilogue}) {
    problem.config.gemm_combine = combine;
    const absl::StatusOr<std::unique_ptr<FusedHarness>> harness = FusedHarness::Create(problem);
    ASSERT_OK(harness.status());
    const std::vector<StepInput> inputs = {(*harness)->Draw({9, 9}), (*harness)->Draw({2, 9}, 0.3)};
    const absl::StatusOr<std::string> difference = (*harness)->Compare(inputs);
    ASSERT_OK(difference.status());
    EXPECT_EQ(*difference, "");
  }
}

// ---- Shared memory.

class FusedSharedMemoryTest : public FusedAutoTest {
 protected:
  // More experts than any GPU has shared memory for.
  static constexpr int kTooMany = 40'000;

  static GroupedGemmVariant Variant(GemmTiles tiles) {
    GroupedGemmVariant variant = {};
    variant.tiles = tiles;
    return variant;
  }
};

TEST_F(FusedSharedMemoryTest, ACombineThatNeedsTooMuchIsRefusedWithTheBytes) {
  MakeNode(1);
  if (IsSkipped()) return;
  GroupedGemmParams params = {};
  params.operands.experts = kTooMany;
  const fused::GemmCombine product(Variant(GemmTiles::kWide), params, Fusion::kTiles);
  EXPECT_OK(node_->Run([&](Rank& /*rank*/) -> absl::Status {
    const absl::Status status = product.Prepare({}, 1).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented,
                                 AllOf(HasSubstr("a block of the fused combine needs "),
                                       HasSubstr(" bytes of shared memory, and this GPU has "),
                                       HasSubstr("fewer experts on a rank"))));
    return OCTET_GPU(hipGetLastError());  // none is left
  }));
}

TEST_F(FusedSharedMemoryTest, ADispatchThatNeedsTooMuchIsRefusedWithTheBytes) {
  MakeNode(1);
  if (IsSkipped()) return;
  high_throughput::Layout layout = {};
  layout.num_ranks = 1;
  layout.num_counts = 8;
  layout.num_experts = kTooMany;
  layout.num_local_experts = kTooMany;
  const fused::DispatchGemm product(Variant(GemmTiles::kWide), {}, false);
  EXPECT_OK(node_->Run([&](Rank& /*rank*/) -> absl::Status {
    const absl::Status status = product.Prepare(layout, 1, 1).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented,
                                 AllOf(HasSubstr("a block of the fused dispatch needs "),
                                       HasSubstr(" bytes of shared memory, and this GPU has "),
                                       HasSubstr("fewer experts on a rank"))));
    return OCTET_GPU(hipGetLastError());
  }));
}

// Calls of many experts, where few have been measured and the file does not say how many.
TEST_F(FusedSharedMemoryTest, WhatDoesNotFitIsNotTaken) {
  MakeNode(2);
  if (IsSkipped()) return;
  RoutedExpertsConfig config = SmallConfig(2);
  config.ep.num_experts = 512;
  config.ep.tuning.waves_per_block = 2;
  config.dispatch_gemm = Fusion::kTiles;
  const absl::Status named = Chosen(config).status();
  if (named.ok()) GTEST_SKIP() << "there is room for 512 experts";
  EXPECT_THAT(named, StatusIs(absl::StatusCode::kUnimplemented,
                              HasSubstr("a block of the fused dispatch needs ")));
  config.dispatch_gemm = Fusion::kAuto;
  Measure(kBothTiles, 2, config);
  if (HasFatalFailure()) return;
  const absl::StatusOr<std::pair<Fusion, Fusion>> chosen = Chosen(config);
  ASSERT_OK(chosen.status());
  EXPECT_EQ(*chosen, std::pair(Fusion::kNone, Fusion::kTiles));
}

}  // namespace
}  // namespace octet
