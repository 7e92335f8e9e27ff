// A dispatch that is fused with a product, against the dispatch and the product alone: what is
// received, what combine makes of it, and the product to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/ep_calls.h"
#include "kernels/fused/dispatch_gemm.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/product_params.h"
#include "octet/expert_parallel.h"
#include "octet/grouped_gemm.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/high_throughput/high_throughput_fixture.h"
#include "tests/support/host_copy.h"
#include "tools/step/step_executor.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

// What a rank's product reads and writes.
struct RankProduct {
  DeviceMemory b, b_scales, fused_out, out;
  std::unique_ptr<GroupedGemm> gemm;
};

class DispatchGemmTest : public HighThroughputTest {
 protected:
  static EpConfig FusableConfig(int num_experts, int topk, int hidden, int max_tokens) {
    EpConfig config = Config(num_experts, topk, hidden, max_tokens);
    config.high_throughput.row_arrivals = true;
    return config;
  }

  // A node, an ExpertParallel, and a product with `n` columns on each rank.
  void MakeFused(int num_ranks, const EpConfig& ep, int n,
                 GemmActivation activation = GemmActivation::kNone,
                 GemmTiles tiles = GemmTiles::kWide) {
    MAKE_OR_SKIP(num_ranks, ep);
    const bool fp8 = ep.dispatch_format == DispatchFormat::kFp8;
    gemm_config_ = {.experts = config().num_local_experts(num_ranks),
                    .max_rows = config().max_rows(num_ranks),
                    .n = n,
                    .k = config().hidden,
                    .dtype = config().dtype,
                    .format = fp8 ? GemmFormat::kFp8 : GemmFormat::kSame,
                    .scale_format = config().scale_format,
                    .activation = activation,
                    .tiles = tiles};
    tiles_ = tiles;
    products_ = std::vector<RankProduct>(static_cast<size_t>(num_ranks));
    ASSERT_OK(harness_->node().Run([&](Rank& rank) { return InitRank(rank); }));
  }

  GroupedGemmVariant variant() const { return VariantOf(gemm_config_, tiles_); }

  // A fused dispatch, a combine, and the product once more by itself; all is checked.
  void RunFused(const StepInput& input, bool weighted = false) {
    ASSERT_OK(Dispatch(input, weighted));
    EXPECT_OK(harness_->CheckReceived(input));
    EXPECT_OK(CompareProducts(RowsInExpertOrder(config(), input.sent()), weighted));
    EXPECT_OK(harness_->Combine(input, harness_->Handles()));
  }

  absl::Status Dispatch(const StepInput& input, bool weighted) {
    return harness_->DispatchBy(input, [&](Rank& rank, const DispatchArgs& args) {
      const auto product = ProductOf(rank, weighted);
      return ep().calls().Dispatch(rank, {.args = args, .product = &product});
    });
  }

  absl::Status InitRank(Rank& rank) {
    RankProduct& mine = Of(rank);
    OCTET_RETURN_IF_ERROR(ep().calls().PrepareDispatchGemm(rank, ProductOf(rank, false)));
    OCTET_ASSIGN_OR_RETURN(mine.gemm, GroupedGemm::Create(gemm_config_));
    const auto experts = static_cast<size_t>(gemm_config_.experts);
    const auto n = static_cast<size_t>(gemm_config_.n);
    std::mt19937 rng(static_cast<uint32_t>(rank.rank()) + 7);
    std::vector<uint8_t> b(experts * n * static_cast<size_t>(gemm_config_.k) *
                           static_cast<size_t>(device::BytesOf(variant().element)));
    // Exponents near that of 1, in each of the formats.
    for (size_t i = 0; i < b.size(); ++i) {
      const auto random = static_cast<uint8_t>(rng());
      const bool upper = variant().element == device::GemmElement::kFp8 || i % 2 == 1;
      b[i] = upper ? static_cast<uint8_t>((random & 0x83) | 0x38) : random;
    }
    OCTET_ASSIGN_OR_RETURN(mine.b, DeviceMemory::Allocate(b.size()));
    OCTET_RETURN_IF_ERROR(ToDevice(mine.b, b));
    if (gemm_config_.format == GemmFormat::kFp8) {
      std::vector<float> scales(experts * static_cast<size_t>(gemm_config_.weight_scale_rows()) *
                                static_cast<size_t>(gemm_config_.scale_words()));
      for (float& scale : scales) scale = std::ldexp(1.0F, static_cast<int>(rng() % 9) - 4);
      OCTET_ASSIGN_OR_RETURN(mine.b_scales, DeviceMemory::Allocate(scales.size() * sizeof(float)));
      OCTET_RETURN_IF_ERROR(ToDevice(mine.b_scales, scales));
    }
    OCTET_ASSIGN_OR_RETURN(mine.fused_out, DeviceMemory::Allocate(OutBytes()));
    OCTET_ASSIGN_OR_RETURN(mine.out, DeviceMemory::Allocate(OutBytes()));
    return absl::OkStatus();
  }

  size_t RowBytes() const { return static_cast<size_t>(gemm_config_.out_columns()) * 2; }
  size_t OutBytes() const { return static_cast<size_t>(gemm_config_.max_rows) * RowBytes(); }
  RankProduct& Of(const Rank& rank) { return products_[static_cast<size_t>(rank.rank())]; }

  fused::DispatchGemm ProductOf(const Rank& rank, bool weighted) {
    const RankProduct& mine = Of(rank);
    const GroupedGemmArgs args = {.b = mine.b.as<void>(),
                                  .b_scales = mine.b_scales.as<void>(),
                                  .out = mine.fused_out.as<void>()};
    return {variant(), ParamsOf(gemm_config_, args), weighted};
  }

  absl::Status CompareProducts(const std::vector<int>& rows, bool weighted) {
    return harness_->node().Run([&](Rank& rank) -> absl::Status {
      RankProduct& mine = Of(rank);
      const Received& got = received(rank);
      OCTET_RETURN_IF_ERROR(
          mine.gemm->Run({.a = got.x,
                          .b = mine.b.as<void>(),
                          .a_scales = got.scales,
                          .b_scales = mine.b_scales.as<void>(),
                          .expert_offsets = got.expert_offsets,
                          .expert_counts = got.expert_counts,
                          .row_scale = weighted ? got.high_throughput.row_weights : nullptr,
                          .out = mine.out.as<void>()},
                         rank.stream()));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      const size_t bytes = static_cast<size_t>(rows[static_cast<size_t>(rank.rank())]) * RowBytes();
      OCTET_ASSIGN_OR_RETURN(const auto fused, ToHost<uint8_t>(mine.fused_out.as<void>(), bytes));
      OCTET_ASSIGN_OR_RETURN(const auto alone, ToHost<uint8_t>(mine.out.as<void>(), bytes));
      for (size_t i = 0; i < bytes; ++i) {
        if (fused[i] == alone[i]) continue;
        return absl::DataLossError(absl::StrCat("rank ", rank.rank(), ": byte ", i % RowBytes(),
                                                " of row ", i / RowBytes(), " is ", fused[i],
                                                ", not ", alone[i]));
      }
      return absl::OkStatus();
    });
  }

  GroupedGemmConfig gemm_config_;
  GemmTiles tiles_ = GemmTiles::kWide;
  std::vector<RankProduct> products_;
};

TEST_F(DispatchGemmTest, EqualsTheCallsAlone) {
  MakeFused(2, FusableConfig(8, 3, 64, 100), 72);
  if (IsSkipped()) return;
  RunFused(RandomStepOf({100, 37}));
  RunFused(RandomStepOf({3, 100}, 0.3));
  RunFused(RandomStepOf({0, 0}));
  RunFused(RandomStepOf({0, 1}));
}

TEST_F(DispatchGemmTest, DispatchesAloneMayComeBetween) {
  MakeFused(2, FusableConfig(8, 3, 64, 100), 72);
  if (IsSkipped()) return;
  for (const bool fused : {false, true, false, true, true, false, false, true, true, false}) {
    const StepInput input = RandomStepOf({100, 37});
    fused ? RunFused(input) : RunStep(input);
    if (HasFailure()) return;
  }
}

// Every wait of the other ranks and of the product ends, too.
TEST_F(DispatchGemmTest, ARefusedIdEndsTheCallAndTheNextOneWorks) {
  MakeFused(2, FusableConfig(8, 3, 64, 100), 72);
  if (IsSkipped()) return;
  for (const int rank : {0, 1}) {
    StepInput input = RandomStepOf({100, 90});
    input.ranks[static_cast<size_t>(rank)].topk_idx[7] = 8;
    EXPECT_THAT(
        Dispatch(input, false),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            HasSubstr("topk_idx of token 2, k 1 is 8; it must be -1 (dropped) or from 0 to 7")));
    RunFused(RandomStepOf({100, 37}));
    RunStep(RandomStepOf({40, 100}));
  }
}

TEST_F(DispatchGemmTest, RefusesWhatItCannotDo) {
  MakeFused(1, FusableConfig(4, 2, 64, 10), 72);
  if (IsSkipped()) return;
  EXPECT_THAT(Dispatch(RandomStepOf({10}, 0, /*scatter=*/true), false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scatter_idx")));
  RunFused(RandomStepOf({10}));
}

TEST(ChooseSharesTest, KeepsWhatIsGiven) {
  GroupedGemmVariant variant = {};
  variant.tiles = GemmTiles::kWide;
  FusedTuning tuning = {.fill_percent = 33};
  fused::ChooseShares(variant, tuning);
  EXPECT_GT(tuning.send_percent, 0);
  EXPECT_EQ(tuning.fill_percent, 33);
}

TEST_F(DispatchGemmTest, EqualsThemForRandomShapes) {
  for (int i = 0; i < 12; ++i) {
    const auto draw = [this](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(rng_);
    };
    const int ranks = draw(1, std::min(NumGpus(), 8));
    EpConfig config = FusableConfig(ranks * draw(1, 6), 1, 16 * draw(1, 12), draw(1, 150));
    config.topk = draw(1, std::min(config.num_experts, 9));
    config.combine_order = draw(0, 1) == 0 ? CombineOrder::kFlat : CombineOrder::kPerRank;
    config.combine_method = draw(0, 1) == 0 ? CombineMethod::kPush : CombineMethod::kPull;
    config.dtype = draw(0, 1) == 0 ? DType::kBFloat16 : DType::kFloat16;
    if (OCTET_TEST_EMULATED) config.tuning = {.blocks = draw(1, 6), .waves_per_block = draw(1, 2)};
    if (draw(0, 2) == 0) {
      config.dtype = DType::kBFloat16;
      config.dispatch_format = DispatchFormat::kFp8;
      config.scale_format = draw(0, 1) == 0 ? ScaleFormat::kFloat32 : ScaleFormat::kUe8m0;
    }
    const bool gated = draw(0, 1) == 0;
    const int n = (gated ? 16 : 8) * draw(1, 12);
    const bool weighted = draw(0, 1) == 0;
    SCOPED_TRACE(absl::StrCat("shape ", i, ": ", ranks, " ranks, E ", config.num_experts, " K ",
                              config.topk, " H ", config.hidden, " M ", config.max_tokens_per_rank,
                              " N ", n));
    MakeFused(ranks, config, n, gated ? GemmActivation::kSwiGlu : GemmActivation::kNone,
              draw(0, 1) == 0 ? GemmTiles::kWide : GemmTiles::kMedium);
    if (HasFatalFailure() || IsSkipped()) return;
    for (int call = 0; call < 3; ++call) {
      RunFused(RandomStepOf(RandomTokens(rng_, this->config(), ranks), draw(0, 1) * 0.2), weighted);
      if (HasFailure()) return;
      if (call == 1) RunStep(RandomStepOf(RandomTokens(rng_, this->config(), ranks)));
    }
  }
}

}  // namespace
}  // namespace octet
