// The oracle itself, against values worked out by hand and against double precision.
#include "kernels/oracle/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "octet/dtype.h"

namespace octet {
namespace {

TEST(DTypeTest, EveryBitPatternSurvivesARoundTrip) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (int bits = 0; bits < 65536; ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      const float value = FloatFromBits(dtype, pattern);
      const uint16_t back = BitsFromFloat(dtype, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(FloatFromBits(dtype, back)));
      } else {
        EXPECT_EQ(back, pattern);
      }
    }
  }
}

TEST(DTypeTest, RoundsToNearestEven) {
  EXPECT_EQ(BitsFromFloat(DType::kBFloat16, 1.00390625F), 0x3f80);  // half way, down to even
  EXPECT_EQ(BitsFromFloat(DType::kBFloat16, 1.01171875F), 0x3f82);  // half way, up to even
  EXPECT_EQ(BitsFromFloat(DType::kBFloat16, 1.00390637F), 0x3f81);  // above half way
  EXPECT_EQ(BitsFromFloat(DType::kFloat16, 2049.0F), 0x6800);
  EXPECT_EQ(BitsFromFloat(DType::kFloat16, 2051.0F), 0x6802);
  EXPECT_EQ(BitsFromFloat(DType::kFloat16, 65520.0F), 0x7c00);  // overflow is infinity
  EXPECT_EQ(BitsFromFloat(DType::kFloat16, 65519.0F), 0x7bff);
  EXPECT_EQ(BitsFromFloat(DType::kBFloat16, std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(BitsFromFloat(DType::kFloat16, 2.98e-8F), 0x0000);  // below half the least subnormal
  EXPECT_EQ(BitsFromFloat(DType::kFloat16, -3.0e-8F), 0x8001);
}

TEST(DTypeTest, NamesParseBack) {
  EXPECT_EQ(ParseEnum<DType>("dtype", "fp16").value(), DType::kFloat16);
  EXPECT_EQ(ParseEnum<DType>("dtype", "bf16").value(), DType::kBFloat16);
  EXPECT_FALSE(ParseEnum<DType>("dtype", "float16").ok());
}

// Two ranks, four experts, two choices; worked out by hand.
class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() {
    config_.num_experts = 4;
    config_.topk = 2;
    config_.hidden = 8;
    config_.max_tokens_per_rank = 2;
    for (int value = 1; value <= 3; ++value) {
      for (int h = 0; h < 8; ++h) {
        x_.push_back(BitsFromFloat(config_.dtype, static_cast<float>(value * (h + 1))));
      }
    }
    inputs_ = {RankInput{2, absl::MakeSpan(x_).subspan(0, 16), idx0_, weights0_},
               RankInput{1, absl::MakeSpan(x_).subspan(16, 8), idx1_, weights1_}};
  }

  EpConfig config_;
  std::vector<uint16_t> x_;
  std::vector<int32_t> idx0_ = {3, 0, 0, -1};
  std::vector<int32_t> idx1_ = {0, 1};
  std::vector<float> weights0_ = {0.5F, 2.0F, 1.0F, 7.0F};
  std::vector<float> weights1_ = {1.0F, 1.0F};
  std::vector<RankInput> inputs_;
};

TEST_F(ReferenceTest, RowsAreOrderedByExpertThenSourceThenToken) {
  const ReferenceReceived rank0 = ReferenceDispatch(config_, inputs_, 0);
  EXPECT_EQ(rank0.expert_counts, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(rank0.expert_offsets, (std::vector<int32_t>{0, 3, 4}));
  const std::vector<std::vector<int32_t>> want = {
      {0, 0, 1, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}, {1, 0, 1, 1}};
  ASSERT_EQ(rank0.sources.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const RowSource& s = rank0.sources[i];
    EXPECT_EQ((std::vector<int32_t>{s.rank, s.token, s.k, s.local_expert}), want[i]);
  }
  const ReferenceReceived rank1 = ReferenceDispatch(config_, inputs_, 1);
  EXPECT_EQ(rank1.expert_counts, (std::vector<int32_t>{0, 1}));
}

TEST_F(ReferenceTest, RowsOfASourceAreWhereItScattersThem) {
  const std::vector<int32_t> scatter = {0, 1, 0, -7};
  inputs_[0].scatter_idx = scatter;
  const ReferenceReceived received = ReferenceDispatch(config_, inputs_, 0);
  EXPECT_EQ(received.expert_counts, (std::vector<int32_t>{3, 1}));
  const std::vector<std::vector<int32_t>> want = {{0, 1, 0}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}};
  for (size_t i = 0; i < want.size(); ++i) {
    const RowSource& s = received.sources[i];
    EXPECT_EQ((std::vector<int32_t>{s.rank, s.token, s.k}), want[i]);
  }
  EXPECT_EQ(received.row_weights, (std::vector<float>{1, 2, 1, 1}));
  EXPECT_EQ(received.row_index, (std::vector<int32_t>{1, 0, 2, 2}));
}

TEST_F(ReferenceTest, TokensComeOnceAndExpertsStartAligned) {
  config_.high_throughput.expert_alignment = 4;
  const ReferenceReceived packed = ReferenceDispatch(config_, inputs_, 0);
  EXPECT_EQ(packed.expert_counts, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(packed.expert_offsets, (std::vector<int32_t>{0, 4, 8}));
  ASSERT_EQ(packed.sources.size(), 8U);
  EXPECT_EQ(packed.sources[3].rank, -1);
  EXPECT_EQ(packed.sources[4].rank, 1);
  EXPECT_EQ(packed.sources[7].local_expert, -1);
  EXPECT_EQ(packed.row_weights, (std::vector<float>{2, 1, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(packed.row_index, (std::vector<int32_t>{0, 1, 2, -1, 2, -1, -1, -1}));
  EXPECT_EQ(packed.source_offsets, (std::vector<int32_t>{0, 2, 3}));
  config_.high_throughput.expert_alignment = 1;
  config_.output = Output::kDeduplicated;
  const ReferenceReceived once = ReferenceDispatch(config_, inputs_, 0);
  ASSERT_EQ(once.rows(config_).size(), 3U);
  EXPECT_EQ(once.rows(config_)[0].k, 1);
  EXPECT_EQ(once.recv_topk_idx, (std::vector<int32_t>{-1, 0, 0, -1, 0, 1}));
  EXPECT_EQ(once.recv_topk_weights, (std::vector<float>{0, 2, 1, 0, 1, 1}));
}

TEST_F(ReferenceTest, RowsLieApart) {
  const int most = config_.max_tokens_per_rank;
  config_.output = Output::kExpertMajor;
  const ReferenceReceived by_expert = ReferenceDispatch(config_, inputs_, 0);
  EXPECT_EQ(by_expert.expert_offsets, (std::vector<int32_t>{0, 2 * most, 4 * most}));
  EXPECT_EQ(by_expert.places, (std::vector<int32_t>{0, 1, 2, 2 * most}));
  config_.output = Output::kRankMajor;
  const ReferenceReceived by_rank = ReferenceDispatch(config_, inputs_, 0);
  EXPECT_TRUE(by_rank.expert_offsets.empty());
  EXPECT_EQ(by_rank.places, (std::vector<int32_t>{0, 1, 2 * most, 2 * most + 1}));
  EXPECT_EQ(by_rank.split_counts, (std::vector<int32_t>{2, 0, 1, 1}));
}

TEST_F(ReferenceTest, CombineWeighsTheExpertsOutputs) {
  const std::vector<float> scale = {1.0F, 1.25F, 1.5F, 2.0F};
  const std::vector<uint16_t> y = ReferenceCombine(config_, 2, inputs_[0], scale);
  for (int h = 0; h < 8; ++h) {
    const auto i = static_cast<size_t>(h);
    // Token 0: 0.5 · (x · 2) + 2 · (x · 1) = 3x. Token 1: x, its second choice is dropped.
    EXPECT_EQ(FloatFromBits(config_.dtype, y[i]), 3.0F * static_cast<float>(h + 1));
    EXPECT_EQ(FloatFromBits(config_.dtype, y[8 + i]), 2.0F * static_cast<float>(h + 1));
  }
}

TEST_F(ReferenceTest, AllDroppedGivesPositiveZero) {
  const std::vector<int32_t> dropped = {-1, -1, -1, -1};
  inputs_[0].topk_idx = dropped;
  for (const uint16_t bits : ReferenceCombine(config_, 2, inputs_[0], {1.0F, 1.0F, 1.0F, 1.0F})) {
    EXPECT_EQ(bits, 0);
  }
}

// Each product and each sum is rounded: a fused multiply-add would give another result.
TEST_F(ReferenceTest, ProductAndSumAreRoundedSeparately) {
  const std::vector<uint16_t> x(8, BitsFromFloat(config_.dtype, 1.0F));
  const float y1 = 1.0F + std::ldexp(1.0F, -7);
  const float w = 1.0F + std::ldexp(1.0F, -23);
  const float product = w * y1;  // rounded: the exact one has a bit at 2^-30
  const std::vector<float> weights = {-product, w};
  const std::vector<int32_t> idx = {0, 1};
  const RankInput input{1, x, idx, weights};
  EXPECT_EQ(ReferenceCombine(config_, 2, input, {1.0F, y1, 1.0F, 1.0F})[0], 0);
}

// Per rank: 1 + 2^-8 does not survive the rounding of its rank's sum to bf16, which the flat order
// does not have.
TEST_F(ReferenceTest, PerRankSumsAreRoundedBeforeTheyAreAdded) {
  config_.topk = 3;
  config_.num_experts = 4;
  const std::vector<uint16_t> x(8, BitsFromFloat(config_.dtype, 1.0F));
  const std::vector<float> weights = {1.0F, -1.0F, std::ldexp(1.0F, -8)};
  const std::vector<int32_t> idx = {0, 2, 1};  // ranks 0, 1, 0
  const RankInput input{1, x, idx, weights};
  const std::vector<float> scale(4, 1.0F);
  config_.combine_order = CombineOrder::kFlat;
  EXPECT_EQ(FloatFromBits(config_.dtype, ReferenceCombine(config_, 2, input, scale)[0]),
            std::ldexp(1.0F, -8));
  config_.combine_order = CombineOrder::kPerRank;
  EXPECT_EQ(FloatFromBits(config_.dtype, ReferenceCombine(config_, 2, input, scale)[0]), 0.0F);
  const std::vector<uint16_t> bias(8, BitsFromFloat(config_.dtype, 3.0F));
  EXPECT_EQ(FloatFromBits(config_.dtype, ReferenceCombine(config_, 2, input, scale, bias)[0]),
            3.0F);
}

TEST(SameBitsTest, AnyNanEqualsAnyOther) {
  const std::vector<uint16_t> a = {0x7fff, 0x0000};
  const std::vector<uint16_t> b = {0xff81, 0x0000};
  const std::vector<uint16_t> c = {0x7fff, 0x8000};
  EXPECT_TRUE(SameBits(DType::kBFloat16, a, b));
  EXPECT_FALSE(SameBits(DType::kBFloat16, a, c));
  EXPECT_FALSE(SameBits(DType::kBFloat16, a, {0x7fff}));
}

}  // namespace
}  // namespace octet
