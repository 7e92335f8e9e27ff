// Grouped products with MXFP4 weights against float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "octet/dtype.h"
#include "octet/fp4_format.h"
#include "octet/grouped_gemm.h"
#include "tests/kernels/gemm/grouped_gemm_fixture.h"
#include "tests/support/gemm_problem.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCodes = 16;
constexpr size_t kMxScales = 256;

// A weight as the specification has it, in float64, which holds them all.
double WeightOf(size_t code, size_t scale) {
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  if (scale == 255) return std::nan("");
  const double magnitude = std::ldexp(kNumbers[code % 8], static_cast<int>(scale) - 127);
  return code < 8 ? magnitude : -magnitude;
}

// Row r of b has the scale r, and in each of its blocks one number that is not 0; row r of a is 1
// where code r of a row of b is, and 0 elsewhere. So the product has every code with every scale.
GemmProblem EveryNumber() {
  GemmProblem p = MakeGemmProblem(
      {.n = kMxScales, .k = static_cast<int>(kCodes) * kMxBlock, .format = GemmFormat::kMxfp4},
      {static_cast<int32_t>(kCodes)});
  const auto k = static_cast<size_t>(p.config.k);
  std::fill(p.a.begin(), p.a.end(), 0);
  std::fill(p.b.begin(), p.b.end(), 0);
  const size_t scale_bytes = p.b_scales.size() / kMxScales;
  for (size_t code = 0; code < kCodes; ++code) {
    for (size_t scale = 0; scale < kMxScales; ++scale) {
      // Its place in its block differs, too.
      const size_t at = code * kMxBlock + scale % kMxBlock;
      p.b[(scale * k + at) / 2] |= static_cast<uint8_t>(code << (at % 2 * 4));
      p.b_scales[scale * scale_bytes + code] = static_cast<uint8_t>(scale);
    }
    for (size_t i = 0; i < kMxBlock; ++i) p.Set(p.a, code * k + code * kMxBlock + i, 1);
  }
  return p;
}

TEST_F(GroupedGemmTest, ComputesEveryMxfp4NumberExactly) {
  GemmProblem p = EveryNumber();
  for (const GemmTiles tiles : kEveryTiles) {
    p.config.tiles = tiles;
    const absl::StatusOr<std::vector<uint16_t>> out = ComputeGemm(p);
    ASSERT_OK(out.status());
    for (size_t code = 0; code < kCodes; ++code) {
      for (size_t scale = 0; scale < kMxScales; ++scale) {
        const float got = FloatFromBits(DType::kBFloat16, (*out)[code * kMxScales + scale]);
        const double want = WeightOf(code, scale);
        // 0 in the row of `a` makes NaN of infinities in other blocks.
        const bool nan =
            std::isnan(want) || 6 * std::ldexp(1, static_cast<int>(scale) - 127) >= 0x1p128;
        if (nan) {
          EXPECT_TRUE(std::isnan(got)) << EnumName(tiles) << " code " << code << " scale " << scale;
        } else {
          EXPECT_EQ(static_cast<double>(got), want)
              << EnumName(tiles) << " code " << code << " scale " << scale;
        }
      }
    }
  }
}

// The largest scales, one block at a time: infinities have no zeros beside them.
TEST_F(GroupedGemmTest, Mxfp4NumbersBeyondFloat32AreInfinite) {
  GemmProblem p = MakeGemmProblem({.n = kCodes, .k = kMxBlock, .format = GemmFormat::kMxfp4}, {1});
  for (const uint8_t scale : {uint8_t{253}, uint8_t{254}}) {
    std::fill(p.a.begin(), p.a.end(), 0);
    for (size_t i = 0; i < kMxBlock; ++i) p.Set(p.a, i, 0x1p-8F);
    for (size_t code = 0; code < kCodes; ++code) {
      const auto both = static_cast<uint8_t>(code << 4 | code);
      std::fill_n(&p.b[code * kMxBlock / 2], kMxBlock / 2, both);
    }
    const size_t scale_bytes = p.b_scales.size() / kCodes;
    for (size_t row = 0; row < kCodes; ++row) p.b_scales[row * scale_bytes] = scale;
    Check(p);
  }
}

TEST_F(GroupedGemmTest, ComputesMxfp4WithEveryEpilogue) {
  for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
    for (const bool fp8_rows : {false, true}) {
      const GroupedGemmConfig config = {.n = 272,
                                        .k = 416,
                                        .format = GemmFormat::kMxfp4,
                                        .fp8_rows = fp8_rows,
                                        .activation = activation};
      Check(MakeGemmProblem(config, {70, 0, 3, 257}));
      Check(MakeGemmProblem(config, {70, 3, 17}, {.padding = 5, .bias = true, .row_scale = true}));
    }
  }
  Check(MakeGemmProblem({.n = 8, .k = 32, .format = GemmFormat::kMxfp4}, {1}));
  Check(MakeGemmProblem({.n = 8, .k = 32, .format = GemmFormat::kMxfp4, .fp8_rows = true}, {1}));
}

// Whole rounds of stages, whose scales come together, and one stage more.
TEST_F(GroupedGemmTest, ComputesFp8RowsOfManyStages) {
  for (const ScaleFormat scale_format : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
    for (const int k : {1024, 1152}) {
      Check(MakeGemmProblem({.n = 200,
                             .k = k,
                             .format = GemmFormat::kMxfp4,
                             .fp8_rows = true,
                             .scale_format = scale_format},
                            {20, 140}));
    }
  }
}

// The same blocks convert tiles of their own and tiles that they share, with an odd number of
// stages.
TEST_F(GroupedGemmTest, ComputesFp8RowsOfOneAndMoreTiles) {
  Check(MakeGemmProblem(
      {.n = 400, .k = 608, .format = GemmFormat::kMxfp4, .fp8_rows = true, .blocks = 2},
      {20, 260, 129}));
}

// Each row of a has one number, so that an element of the product is a number of b with its scale.
TEST_F(GroupedGemmTest, ComputesEveryMxfp4NumberWithFp8Rows) {
  // Scales of 64 columns are 2^13 apart at most.
  constexpr size_t kSpread = 14;
  constexpr size_t kColumns = 64;
  GemmProblem p = MakeGemmProblem({.n = 18 * static_cast<int>(kColumns),
                                   .k = static_cast<int>(kCodes) * kMxBlock,
                                   .format = GemmFormat::kMxfp4,
                                   .fp8_rows = true},
                                  {static_cast<int32_t>(kCodes)});
  const auto n = static_cast<size_t>(p.config.n);
  const auto k = static_cast<size_t>(p.config.k);
  const auto scale_of = [](size_t row) {
    // The largest exponents are left out: those of bfloat16 end before.
    return std::min<size_t>(row / kColumns * kSpread + row % kSpread, 250);
  };
  std::fill(p.a.begin(), p.a.end(), 0);
  std::fill(p.b.begin(), p.b.end(), 0);
  const size_t scale_bytes = p.b_scales.size() / n;
  for (size_t code = 0; code < kCodes; ++code) {
    for (size_t row = 0; row < n; ++row) {
      const size_t at = code * kMxBlock + row % kMxBlock;
      p.b[(row * k + at) / 2] |= static_cast<uint8_t>(code << (at % 2 * 4));
      p.b_scales[row * scale_bytes + code] = static_cast<uint8_t>(scale_of(row));
    }
    for (size_t i = 0; i < kMxBlock; ++i) p.Set(p.a, code * k + code * kMxBlock + i, 1);
  }
  const float one = 1;
  for (size_t i = 0; i < p.a_scales.size(); i += sizeof(one)) {
    std::memcpy(&p.a_scales[i], &one, sizeof(one));
  }
  for (const GemmTiles tiles : kEveryTiles) {
    p.config.tiles = tiles;
    const absl::StatusOr<std::vector<uint16_t>> out = ComputeGemm(p);
    ASSERT_OK(out.status());
    for (size_t code = 0; code < kCodes; ++code) {
      for (size_t row = 0; row < n; ++row) {
        const float got = FloatFromBits(DType::kBFloat16, (*out)[code * n + row]);
        EXPECT_EQ(static_cast<double>(got), WeightOf(code, scale_of(row)))
            << EnumName(tiles) << " code " << code << " scale " << scale_of(row);
      }
    }
  }
}

// Scales so far apart that some weights are rounded, or vanish, beside others.
TEST_F(GroupedGemmTest, ComputesFp8RowsWithScalesFarApart) {
  GemmProblem p =
      MakeGemmProblem({.n = 136, .k = 672, .format = GemmFormat::kMxfp4, .fp8_rows = true}, {70});
  std::mt19937 rng(7);
  const size_t scale_bytes = p.b_scales.size() / 136;
  for (size_t i = 0; i < p.b_scales.size(); ++i) {
    if (i % scale_bytes < 672 / kMxBlock) p.b_scales[i] = static_cast<uint8_t>(100 + rng() % 40);
  }
  Check(p);
}

TEST_F(GroupedGemmTest, ComputesRandomShapesOfMxfp4) {
  constexpr int kShapes = 24;
  for (uint32_t seed = 1; seed <= kShapes; ++seed) {
    std::mt19937 rng(seed);
    const auto draw = [&rng](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(rng);
    };
    GroupedGemmConfig config = {
        .n = 16 * draw(1, 20), .k = kMxBlock * draw(1, 24), .format = GemmFormat::kMxfp4};
    config.fp8_rows = seed % 2 == 1;
    config.scale_format = seed % 4 == 1 ? ScaleFormat::kUe8m0 : ScaleFormat::kFloat32;
    config.activation = draw(0, 1) == 0 ? GemmActivation::kNone : GemmActivation::kSwiGlu;
    if (config.activation == GemmActivation::kNone) config.n += 8 * draw(0, 1);
    config.blocks = draw(0, 5);
    std::vector<int32_t> rows(static_cast<size_t>(draw(1, 5)));
    for (int32_t& count : rows) count = draw(0, 3) == 0 ? 0 : draw(1, seed % 4 == 0 ? 200 : 40);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Check(MakeGemmProblem(config, rows,
                          {.padding = draw(0, 2) * 5,
                           .bias = draw(0, 1) == 1,
                           .row_scale = draw(0, 1) == 1,
                           .seed = seed}));
  }
}

// Limits that many numbers exceed, NaN beside them.
TEST_F(GroupedGemmTest, CutsGateAndUp) {
  for (const GemmFormat format : {GemmFormat::kSame, GemmFormat::kMxfp4}) {
    GroupedGemmConfig config = {.n = 80,
                                .k = 64,
                                .format = format,
                                .activation = GemmActivation::kSwiGlu,
                                .swiglu = {.alpha = 1.702F, .limit = 2.0F, .up_offset = 1.0F}};
    GemmProblem p = MakeGemmProblem(config, {20, 0, 70}, {.bias = true});
    p.Set(p.a, size_t{3} * 64 + 7, kNan);
    Check(p);
    p.row_scale.resize(static_cast<size_t>(p.config.max_rows), 1);
    EXPECT_THAT(std::string(ComputeGemm(p).status().message()), HasSubstr("row_scale"));
    config.experts = 1;
    config.max_rows = 8;
    config.swiglu.limit = kNan;
    EXPECT_TRUE(absl::IsInvalidArgument(GroupedGemm::Create(config).status()));
    config.swiglu.limit = 7;
    config.activation = GemmActivation::kNone;
    EXPECT_TRUE(absl::IsInvalidArgument(GroupedGemm::Create(config).status()));
  }
}

TEST_F(GroupedGemmTest, PropagatesNanOfMxfp4) {
  GemmProblem p = MakeGemmProblem({.n = 144, .k = 288, .format = GemmFormat::kMxfp4}, {20, 70});
  p.Set(p.a, size_t{3} * 288 + 7, kNan);
  // The scale of the last columns of K, in a row of the second expert's.
  const size_t scale_bytes = p.b_scales.size() / 288;
  p.b_scales[(144 + 100) * scale_bytes + 8] = 0xff;
  Check(p);
}

TEST_F(GroupedGemmTest, PropagatesNanOfMxfp4WithFp8Rows) {
  const GroupedGemmConfig config = {
      .n = 144, .k = 288, .format = GemmFormat::kMxfp4, .fp8_rows = true};
  GemmProblem p = MakeGemmProblem(config, {20, 70});
  p.Set(p.a, size_t{3} * 288 + 7, kNan);
  const size_t scale_bytes = p.b_scales.size() / 288;
  p.b_scales[(144 + 100) * scale_bytes + 8] = 0xff;
  // All of a row, so that no exponent is the largest there.
  for (size_t block = 0; block < 9; ++block) p.b_scales[30 * scale_bytes + block] = 0xff;
  std::memcpy(&p.a_scales[size_t{40} * p.a_scales.size() / p.config.max_rows], &kNan, sizeof(kNan));
  Check(p);
}

TEST_F(GroupedGemmTest, RefusesWhatMxfp4CannotBe) {
  const auto refusal = [](const GroupedGemmConfig& config) {
    return GroupedGemm::Create(config).status();
  };
  GroupedGemmConfig config = {
      .experts = 1, .max_rows = 8, .n = 16, .k = 48, .format = GemmFormat::kMxfp4};
  EXPECT_THAT(std::string(refusal(config).message()), HasSubstr("multiple of 32 with MXFP4"));
  config.k = 64;
  config.dtype = DType::kFloat16;
  EXPECT_THAT(std::string(refusal(config).message()), HasSubstr("MXFP4 operands are bf16"));
  config.dtype = DType::kBFloat16;
  config.output = GemmOutput::kFloat32;
  EXPECT_THAT(std::string(refusal(config).message()), HasSubstr("float32"));
  config.output = GemmOutput::kDtype;
  config.fp8_rows = true;
  config.format = GemmFormat::kFp8;
  EXPECT_THAT(std::string(refusal(config).message()), HasSubstr("fp8_rows is true"));

  const GemmProblem p = MakeGemmProblem({.n = 16, .k = 64, .format = GemmFormat::kMxfp4}, {4});
  absl::StatusOr<GemmOnGpu> gpu = GemmOnGpu::Make(p);
  ASSERT_OK(gpu.status());
  auto gemm = GroupedGemm::Create(p.config);
  ASSERT_OK(gemm.status());
  const void* const scales = gpu->args().b_scales;
  gpu->args().b_scales = nullptr;
  EXPECT_TRUE(absl::IsInvalidArgument((*gemm)->Run(gpu->args(), nullptr)));
  gpu->args().b_scales = static_cast<const char*>(scales) + 4;
  EXPECT_THAT(std::string((*gemm)->Run(gpu->args(), nullptr).message()), HasSubstr("16 bytes"));
  gpu->args().b_scales = scales;
  gpu->args().a_scales = scales;
  EXPECT_TRUE(absl::IsInvalidArgument((*gemm)->Run(gpu->args(), nullptr)));
  gpu->args().a_scales = nullptr;
  EXPECT_OK((*gemm)->Run(gpu->args(), nullptr));
}

}  // namespace
}  // namespace octet
