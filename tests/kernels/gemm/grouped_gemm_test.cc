// Grouped products against the float64 reference, over shapes, dtypes, epilogues and tile shapes.
#include "octet/grouped_gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/product_params.h"
#include "kernels/oracle/gemm_reference.h"
#include "octet/ep_config.h"
#include "octet/fp8_format.h"
#include "octet/native_fp8.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/gemm/grouped_gemm_fixture.h"
#include "tests/support/gemm_problem.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

TEST_F(GroupedGemmTest, ComputesExpertsOfAnyNumberOfRows) {
  const GroupedGemmConfig config = {.n = 136, .k = 72};
  Check(MakeGemmProblem(config, {0, 1, 129, 0, 65, 64, 0}));
  Check(MakeGemmProblem(config, {300}));
  Check(MakeGemmProblem(config, {0}));
  Check(MakeGemmProblem(config, std::vector<int32_t>(256, 1)));
}

TEST_F(GroupedGemmTest, ComputesTheSmallestShape) {
  Check(MakeGemmProblem({.n = 8, .k = 8}, {1}));
  Check(MakeGemmProblem({.n = 16, .k = 8, .activation = GemmActivation::kSwiGlu}, {1}));
}

TEST_F(GroupedGemmTest, TouchesNoPadding) {
  Check(MakeGemmProblem({.n = 40, .k = 40}, {5, 0, 63, 130}, {.padding = 9}));
}

TEST_F(GroupedGemmTest, EndsExpertsAtTheNextOffsetWithoutCounts) {
  const GemmProblem p = MakeGemmProblem({.n = 40, .k = 40}, {5, 0, 63});
  absl::StatusOr<GemmOnGpu> gpu = GemmOnGpu::Make(p);
  ASSERT_OK(gpu.status());
  gpu->args().expert_counts = nullptr;
  auto gemm = GroupedGemm::Create(p.config);
  ASSERT_OK(gemm.status());
  ASSERT_OK((*gemm)->Run(gpu->args(), nullptr));
  const absl::StatusOr<std::vector<uint16_t>> out = gpu->Out();
  ASSERT_OK(out.status());
  EXPECT_EQ(FirstWrongElement(p, ExpectedGemm(p), *out), "");
}

TEST_F(GroupedGemmTest, AppliesEveryEpilogue) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
      for (const bool bias : {false, true}) {
        for (const bool row_scale : {false, true}) {
          const GroupedGemmConfig config = {
              .n = 208, .k = 88, .dtype = dtype, .activation = activation};
          Check(MakeGemmProblem(config, {70, 3, 17}, {.bias = bias, .row_scale = row_scale}));
        }
      }
    }
  }
}

TEST_F(GroupedGemmTest, ComputesFp8WithEveryEpilogue) {
  for (const ScaleFormat scales : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
    for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
      GroupedGemmConfig config = {.n = 272,
                                  .k = 400,
                                  .format = GemmFormat::kFp8,
                                  .scale_format = scales,
                                  .activation = activation};
      Check(MakeGemmProblem(config, {70, 0, 3, 257}));
      Check(MakeGemmProblem(config, {70, 3, 17}, {.padding = 5, .bias = true, .row_scale = true}));
      config.k = 1536;  // of which scales may come several at a time
      Check(MakeGemmProblem(config, {130, 3, 70}));
    }
  }
}

TEST_F(GroupedGemmTest, GivesFloat32OfBothTypes) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const GroupedGemmConfig config = {
        .n = 208, .k = 88, .dtype = dtype, .output = GemmOutput::kFloat32};
    Check(MakeGemmProblem(config, {70, 0, 3, 257}));
    Check(MakeGemmProblem(config, {70, 3, 17}, {.padding = 5, .bias = true, .row_scale = true}));
  }
}

// Rounding that float32 gives what the product in the dtype is, and its bits are those of every
// number of blocks.
TEST_F(GroupedGemmTest, RoundsWhatItGivesInFloat32) {
  for (const GemmTiles tiles : kEveryTiles) {
    GemmProblem p = MakeGemmProblem({.n = 272, .k = 144}, {70, 0, 3, 130});
    p.config.tiles = tiles;
    const absl::StatusOr<std::vector<uint16_t>> rounded = ComputeGemm(p);
    p.config.output = GemmOutput::kFloat32;
    const absl::StatusOr<std::vector<uint16_t>> plain = ComputeGemm(p);
    p.config.blocks = 3;
    const absl::StatusOr<std::vector<uint16_t>> again = ComputeGemm(p);
    ASSERT_OK(rounded.status());
    ASSERT_OK(plain.status());
    EXPECT_EQ(plain, again);
    for (size_t i = 0; i < rounded->size(); ++i) {
      ASSERT_EQ((*rounded)[i],
                BitsFromFloat(p.config.dtype, OutputElement(p.config, plain->data(), i)))
          << EnumName(tiles) << " element " << i;
    }
  }
}

// Sets the scales of b to powers of two, so that gate is about 1, where silu() bends, and up 32
// times as much. They are others in the next row and in the next group of columns of K.
void SetScalesOfGateAndUp(GemmProblem& p) {
  const int rows = p.config.weight_scale_rows();
  const bool ue8m0 = p.config.scale_format == ScaleFormat::kUe8m0;
  const size_t bytes = ue8m0 ? 1 : sizeof(float);
  const size_t groups = static_cast<size_t>(p.config.scale_words()) * sizeof(float) / bytes;
  for (size_t i = 0; i < p.b_scales.size() / bytes; ++i) {
    const int row = static_cast<int>(i / groups) % rows;
    const bool up = row >= rows / 2;
    const int group_of_n = row % (rows / 2);
    const int exponent = (up ? -6 : -11) + 2 * (group_of_n % 2) + static_cast<int>(i % groups % 2);
    const float scale = std::ldexp(1.0F, exponent);
    const uint8_t byte = Ue8m0FromScale(scale);
    std::memcpy(&p.b_scales[i * bytes], ue8m0 ? static_cast<const void*>(&byte) : &scale, bytes);
  }
}

TEST_F(GroupedGemmTest, ScalesGateAndUpOfFp8ByTheirOwn) {
  for (const ScaleFormat scales : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
    for (const int n : {16, 272, 784}) {
      GemmProblem p = MakeGemmProblem({.n = n,
                                       .k = 272,
                                       .format = GemmFormat::kFp8,
                                       .scale_format = scales,
                                       .activation = GemmActivation::kSwiGlu},
                                      {70, 0, 3, 130});
      SetScalesOfGateAndUp(p);
      Check(p);
    }
  }
}

TEST_F(GroupedGemmTest, ComputesTheSmallestFp8Shape) {
  Check(MakeGemmProblem({.n = 8, .k = 16, .format = GemmFormat::kFp8}, {1}));
  Check(MakeGemmProblem(
      {.n = 16, .k = 16, .format = GemmFormat::kFp8, .activation = GemmActivation::kSwiGlu}, {1}));
}

// Zeros but for one element of each group of columns, so that a sum has one addend of a group and
// is exact: the scales must be those of that row, column and group.
TEST_F(GroupedGemmTest, DequantisesExactly) {
  GemmProblem p = MakeGemmProblem({.n = 264, .k = 1040, .format = GemmFormat::kFp8}, {3, 130});
  constexpr size_t kRows = 133;
  const auto k = static_cast<size_t>(p.config.k);
  for (size_t group = 0; group * kGemmScaleGroup < k; ++group) {
    GemmProblem one = p;
    std::fill(one.a.begin(), one.a.end(), 0);
    for (size_t row = 0; row < kRows; ++row) {
      const size_t at = row * k + std::min(group * kGemmScaleGroup + row % kGemmScaleGroup, k - 1);
      one.a[at] = p.a[at];
    }
    const std::vector<GemmExpectation> expected = ExpectedGemm(one);
    for (const GemmTiles tiles : kEveryTiles) {
      one.config.tiles = tiles;
      const absl::StatusOr<std::vector<uint16_t>> out = ComputeGemm(one);
      ASSERT_OK(out.status());
      size_t next = 0;
      for (const GemmExpectation& want : expected) {
        // One rounding of the scales' product, one of its product with the sum, one to bfloat16.
        ASSERT_TRUE(MeetsExpectation({want.value, std::abs(want.value) * 0x1p-22}, DType::kBFloat16,
                                     (*out)[next]))
            << EnumName(tiles) << " group " << group << " element " << next << " is "
            << FloatFromBits(DType::kBFloat16, (*out)[next]) << " and should be " << want.value;
        ++next;
      }
    }
  }
}

TEST_F(GroupedGemmTest, PropagatesNanOfFp8) {
  GemmProblem p = MakeGemmProblem({.n = 144, .k = 272, .format = GemmFormat::kFp8}, {20, 70});
  const auto k = static_cast<size_t>(p.config.k);
  p.Set(p.a, 3 * k + 7, kNan);
  p.Set(p.b, (144 + 100) * k + 271, kNan);
  // The scale of row 9 and the last columns of K.
  const auto words = static_cast<size_t>(p.config.scale_words());
  std::memcpy(&p.a_scales[(9 * words + 2) * sizeof(float)], &kNan, sizeof(kNan));
  Check(p);
}

TEST_F(GroupedGemmTest, ComputesRandomShapes) {
  constexpr int kShapes = 40;
  for (uint32_t seed = 1; seed <= kShapes; ++seed) {
    std::mt19937 rng(seed);
    const auto draw = [&rng](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(rng);
    };
    GroupedGemmConfig config = {.n = 16 * draw(1, 40), .k = 8 * draw(1, 60)};
    const int type = draw(0, 3);
    config.dtype = type == 1 ? DType::kFloat16 : DType::kBFloat16;
    if (type >= 2) {
      config.k *= 2;
      config.format = GemmFormat::kFp8;
      config.scale_format = type == 2 ? ScaleFormat::kFloat32 : ScaleFormat::kUe8m0;
    }
    config.activation = draw(0, 1) == 0 ? GemmActivation::kNone : GemmActivation::kSwiGlu;
    if (config.activation == GemmActivation::kNone) config.n += 8 * draw(0, 1);
    config.blocks = draw(0, 5);
    const int most_rows = draw(1, 4) == 1 ? 300 : 40;
    std::vector<int32_t> rows(static_cast<size_t>(draw(1, 6)));
    for (int32_t& count : rows) count = draw(0, 3) == 0 ? 0 : draw(1, most_rows);
    const bool rounds =
        config.format == GemmFormat::kFp8 || config.activation == GemmActivation::kSwiGlu;
    if (!rounds && draw(0, 2) == 0) config.output = GemmOutput::kFloat32;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Check(MakeGemmProblem(config, rows,
                          {.padding = draw(0, 2) * 5,
                           .bias = draw(0, 1) == 1,
                           .row_scale = draw(0, 1) == 1,
                           .seed = seed}));
  }
}

TEST_F(GroupedGemmTest, ComputesLargeK) { Check(MakeGemmProblem({.n = 24, .k = 16384}, {3, 9})); }

// Computes `p`, of one expert, as the last rows of operands that have more than 2^31 elements.
absl::StatusOr<std::vector<uint16_t>> ComputeFarAway(const GemmProblem& p, int64_t max_rows) {
  GroupedGemmConfig config = p.config;
  config.max_rows = max_rows;
  const auto k = static_cast<size_t>(config.k);
  const auto n = static_cast<size_t>(config.n);
  const auto rows = static_cast<size_t>(p.counts[0]);
  const size_t first = static_cast<size_t>(max_rows) - rows;
  OCTET_ASSIGN_OR_RETURN(const DeviceMemory a,
                         DeviceMemory::Allocate(static_cast<size_t>(max_rows) * k * 2));
  OCTET_ASSIGN_OR_RETURN(const DeviceMemory out,
                         DeviceMemory::Allocate(static_cast<size_t>(max_rows) * n * 2));
  OCTET_ASSIGN_OR_RETURN(const DeviceMemory b, Upload(p.b));
  OCTET_ASSIGN_OR_RETURN(
      const DeviceMemory offsets,
      Upload(std::vector<int32_t>{static_cast<int32_t>(first), static_cast<int32_t>(max_rows)}));
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(a.as<uint16_t>() + first * k, p.a.data(), rows * k * 2, hipMemcpyHostToDevice));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> gemm, GroupedGemm::Create(config));
  const GroupedGemmArgs args = {.a = a.as<void>(),
                                .b = b.as<void>(),
                                .expert_offsets = offsets.as<int32_t>(),
                                .out = out.as<void>()};
  OCTET_RETURN_IF_ERROR(gemm->Run(args, nullptr));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
  return ToHost<uint16_t>(out.as<uint16_t>() + first * n, rows * n);
}

TEST_F(GroupedGemmTest, ComputesLargeArrays) {
  constexpr int64_t kRows = (int64_t{1} << 18) + 100;
  for (const bool large_a : {true, false}) {
    GemmProblem p = MakeGemmProblem({.n = large_a ? 16 : 8192, .k = large_a ? 8192 : 16}, {10});
    p.config.max_rows = 10;
    const std::vector<GemmExpectation> expected = ExpectedGemm(p);
    for (const GemmTiles tiles : {GemmTiles::kWide, GemmTiles::kFew16}) {
      p.config.tiles = tiles;
      const absl::StatusOr<std::vector<uint16_t>> out = ComputeFarAway(p, kRows);
      if (absl::IsResourceExhausted(out.status())) GTEST_SKIP() << out.status();
      ASSERT_OK(out.status());
      EXPECT_EQ(FirstWrongElement(p, expected, *out), "") << EnumName(tiles);
    }
  }
}

TEST_F(GroupedGemmTest, GivesTheSameBitsForAnyNumberOfBlocks) {
  for (const GemmFormat format : {GemmFormat::kSame, GemmFormat::kFp8}) {
    GemmProblem p = MakeGemmProblem({.n = 520, .k = 272, .format = format}, {140, 0, 1, 77, 260});
    for (const GemmTiles tiles : kEveryTiles) {
      p.config.tiles = tiles;
      p.config.blocks = 0;
      const absl::StatusOr<std::vector<uint16_t>> want = ComputeGemm(p);
      ASSERT_OK(want.status());
      for (const int blocks : {1, 2, 3, 7, 300}) {
        p.config.blocks = blocks;
        const absl::StatusOr<std::vector<uint16_t>> got = ComputeGemm(p);
        ASSERT_OK(got.status());
        EXPECT_EQ(*got, *want) << blocks << " blocks, " << EnumName(tiles) << " "
                               << EnumName(format);
      }
    }
  }
}

TEST_F(GroupedGemmTest, RowsDoNotDependOnOtherRows) {
  GemmProblem p = MakeGemmProblem({.n = 136, .k = 136}, {130, 20});
  for (const GemmTiles tiles : kEveryTiles) {
    p.config.tiles = tiles;
    const absl::StatusOr<std::vector<uint16_t>> want = ComputeGemm(p);
    ASSERT_OK(want.status());
    GemmProblem other = p;
    const auto k = static_cast<size_t>(p.config.k);
    for (size_t i = 10 * k; i < 11 * k; ++i) p.Set(other.a, i, kNan);
    const absl::StatusOr<std::vector<uint16_t>> got = ComputeGemm(other);
    ASSERT_OK(got.status());
    std::vector<uint16_t> expected = *want;
    std::fill(expected.begin() + 10 * p.config.n, expected.begin() + 11 * p.config.n, 0);
    std::vector<uint16_t> rest = *got;
    for (int c = 0; c < p.config.n; ++c) {
      uint16_t& element = rest[10 * static_cast<size_t>(p.config.n) + static_cast<size_t>(c)];
      EXPECT_TRUE(std::isnan(FloatFromBits(p.config.dtype, element))) << "column " << c;
      element = 0;
    }
    EXPECT_EQ(rest, expected) << EnumName(tiles);
  }
}

TEST_F(GroupedGemmTest, PropagatesNanAndInfinity) {
  for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      GemmProblem p =
          MakeGemmProblem({.n = 144, .k = 80, .dtype = dtype, .activation = activation}, {20, 70});
      const auto k = static_cast<size_t>(p.config.k);
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      p.Set(p.a, 3 * k + 7, kInfinity);
      p.Set(p.a, 25 * k + 79, -kInfinity);
      p.Set(p.a, 40 * k, kNan);
      p.Set(p.b, 5 * k + 7, 0);          // 0 · infinity
      p.Set(p.b, 9 * k + 1, kInfinity);  // a column of the first expert
      p.Set(p.b, (144 + 100) * k + 3, kNan);
      Check(p);
    }
  }
}

TEST_F(GroupedGemmTest, OverflowBecomesInfinity) {
  GemmProblem p = MakeGemmProblem({.n = 16, .k = 64, .dtype = DType::kFloat16}, {8});
  for (size_t i = 0; i < size_t{64} * 4; ++i) p.Set(p.a, i, 1000);
  for (size_t i = 0; i < size_t{64} * 8; ++i) p.Set(p.b, i, 1000);
  Check(p);
}

TEST_F(GroupedGemmTest, CutsOffsetsToTheMemoryThereIs) {
  GemmProblem p = MakeGemmProblem({.n = 24, .k = 24}, {20, 20});
  p.config.max_rows = 30;  // the offsets say 40
  const absl::StatusOr<std::vector<uint16_t>> out = ComputeGemm(p);
  ASSERT_OK(out.status());
  EXPECT_EQ(FirstWrongElement(p, ExpectedGemm(p), *out), "");
}

TEST_F(GroupedGemmTest, ReplaysInAGraph) {
  const GemmProblem p = MakeGemmProblem({.n = 264, .k = 72}, {140, 20});
  absl::StatusOr<GemmOnGpu> gpu = GemmOnGpu::Make(p);
  ASSERT_OK(gpu.status());
  auto gemm = GroupedGemm::Create(p.config);
  ASSERT_OK(gemm.status());
  hipStream_t stream = nullptr;
  ASSERT_OK(OCTET_GPU(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking)));
  ASSERT_OK(OCTET_GPU(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal)));
  EXPECT_OK((*gemm)->Run(gpu->args(), stream));
  hipGraph_t graph = nullptr;
  ASSERT_OK(OCTET_GPU(hipStreamEndCapture(stream, &graph)));
  hipGraphExec_t executable = nullptr;
  ASSERT_OK(OCTET_GPU(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0)));
  for (int replay = 0; replay < 3; ++replay) {
    ASSERT_OK(gpu->ClearOut());
    ASSERT_OK(OCTET_GPU(hipGraphLaunch(executable, stream)));
    ASSERT_OK(OCTET_GPU(hipStreamSynchronize(stream)));
    const absl::StatusOr<std::vector<uint16_t>> out = gpu->Out();
    ASSERT_OK(out.status());
    EXPECT_EQ(FirstWrongElement(p, ExpectedGemm(p), *out), "") << "replay " << replay;
  }
  EXPECT_OK(OCTET_GPU(hipGraphExecDestroy(executable)));
  EXPECT_OK(OCTET_GPU(hipGraphDestroy(graph)));
  EXPECT_OK(OCTET_GPU(hipStreamDestroy(stream)));
}

}  // namespace
}  // namespace octet
