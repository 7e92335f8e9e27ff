// Grouped products refuse what they cannot do, and choose their tiles.
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

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(GroupedGemmTest, ChoosesTilesByTheRowsAndColumns) {
  const auto choose = [](int64_t rows, int n, GemmFormat format = GemmFormat::kSame) {
    const auto gemm = GroupedGemm::Create({.experts = 64,
                                           .max_rows = 64 * rows,
                                           .n = n,
                                           .k = 64,
                                           .format = format,
                                           .expected_rows = rows});
    return gemm.ok() ? std::string(EnumName((*gemm)->tiles())) : gemm.status().ToString();
  };
  EXPECT_EQ(choose(1, 4096), "few32");
  EXPECT_EQ(choose(16, 4096), "few32");
  EXPECT_EQ(choose(17, 4096), "wide");
  EXPECT_EQ(choose(1, 4096, GemmFormat::kFp8), "wide");
  for (const auto& [rows, tiles] :
       {std::pair(12, "few16"), std::pair(13, "few32"), std::pair(32, "few32"),
        std::pair(33, "few64"), std::pair(64, "few64"), std::pair(65, "wide")}) {
    EXPECT_EQ(choose(rows, 4096, GemmFormat::kMxfp4), tiles) << rows;
  }
  EXPECT_EQ(choose(512, 768), choose(512, 768 * 2));
  EXPECT_THAT(choose(512, 4096), ::testing::AnyOf("wide", "medium"));
}

// The first of the tile shapes with the fewest rows that the platform has.
GemmTiles TilesWithFewestRows(const GroupedGemmConfig& config) {
  const auto rows = [&](GemmTiles tiles) { return TileShapeOf(VariantOf(config, tiles)).rows; };
  return *std::min_element(std::begin(kEveryTiles), std::end(kEveryTiles),
                           [&](GemmTiles a, GemmTiles b) { return rows(a) < rows(b); });
}

TEST_F(GroupedGemmTest, ChoosesSmallerTilesIfThereAreFew) {
  GroupedGemmConfig config = {.experts = 1, .n = 256, .k = 64};
  const std::string fewest(EnumName(TilesWithFewestRows(config)));
  const auto choose = [&](int64_t rows, int blocks) {
    config.max_rows = rows;
    config.blocks = blocks;
    const auto gemm = GroupedGemm::Create(config);
    return gemm.ok() ? std::string(EnumName((*gemm)->tiles())) : gemm.status().ToString();
  };
  EXPECT_EQ(choose(1024, 1), "wide");
  EXPECT_EQ(choose(1024, 1000), fewest);
  EXPECT_EQ(choose(64, 1), "wide");
  EXPECT_EQ(choose(64, 1000), fewest);
}

// More blocks than are resident compute nothing sooner, and a grid can be too large for a GPU.
TEST_F(GroupedGemmTest, HasNoMoreBlocksThanAreResident) {
  const GroupedGemmConfig config = {.n = 136, .k = 72};
  GemmProblem p = MakeGemmProblem(config, {0, 1, 129, 0, 65});
  const std::vector<GemmExpectation> expected = ExpectedGemm(p);
  for (const GemmTiles tiles : kEveryTiles) {
    p.config.tiles = tiles;
    p.config.blocks = 0;
    const absl::StatusOr<std::unique_ptr<GroupedGemm>> most = GroupedGemm::Create(p.config);
    ASSERT_OK(most.status());
    for (const int blocks : {1'000'000, std::numeric_limits<int>::max()}) {
      p.config.blocks = blocks;
      const absl::StatusOr<std::unique_ptr<GroupedGemm>> gemm = GroupedGemm::Create(p.config);
      ASSERT_OK(gemm.status());
      EXPECT_GE((*gemm)->blocks(), (*most)->blocks());
      ASSERT_LT((*gemm)->blocks(), 1'000'000);
      const absl::StatusOr<std::vector<uint16_t>> out = ComputeGemm(p);
      ASSERT_OK(out.status()) << p.Text();
      EXPECT_EQ(FirstWrongElement(p, expected, *out), "") << EnumName(tiles) << " " << p.Text();
    }
  }
}

TEST_F(GroupedGemmTest, RefusesAConfigThatCannotBe) {
  const GroupedGemmConfig good = {.experts = 2, .max_rows = 10, .n = 16, .k = 16};
  const auto refusal = [](const GroupedGemmConfig& config) {
    return GroupedGemm::Create(config).status();
  };
  const auto is = [](const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words));
  };
  EXPECT_OK(refusal(good));
  GroupedGemmConfig config = good;
  config.experts = 257;
  EXPECT_THAT(refusal(config), is("experts is 257; it must be 1 to 256"));
  config = good;
  config.max_rows = int64_t{1} << 31;
  EXPECT_THAT(refusal(config), is("max_rows is 2147483648"));
  config = good;
  config.n = 12;
  EXPECT_THAT(refusal(config), is("n is 12; it must be a positive multiple of 8"));
  config.n = 24;
  config.activation = GemmActivation::kSwiGlu;
  EXPECT_THAT(refusal(config), is("n is 24; it must be a positive multiple of 16 with SwiGLU"));
  config = good;
  config.k = 0;
  EXPECT_THAT(refusal(config), is("k is 0; it must be a positive multiple of 8"));
  config.format = GemmFormat::kFp8;
  config.k = 24;
  EXPECT_THAT(refusal(config), is("k is 24; it must be a positive multiple of 16 with FP8"));
  config.k = 32;
  config.dtype = DType::kFloat16;
  EXPECT_THAT(refusal(config), is("products of FP8 operands are bf16"));
  config.dtype = DType::kBFloat16;
  config.output = GemmOutput::kFloat32;
  EXPECT_THAT(refusal(config), is("output is float32, which needs operands of the dtype, not FP8"));
  config = good;
  config.output = GemmOutput::kFloat32;
  config.activation = GemmActivation::kSwiGlu;
  EXPECT_THAT(refusal(config), is("output is float32, which needs activation none"));
  config = good;
  config.blocks = -1;
  EXPECT_THAT(refusal(config), is("blocks -1"));
  config = {.experts = 1, .max_rows = (int64_t{1} << 31) - 1, .n = 8192, .k = 8};
  config.tiles = GemmTiles::kFew16;
  EXPECT_THAT(refusal(config), is("more than 2^31 tiles"));
}

TEST_F(GroupedGemmTest, RefusesPointersThatCannotBe) {
  const GemmProblem p = MakeGemmProblem({.n = 16, .k = 16}, {4});
  absl::StatusOr<GemmOnGpu> gpu = GemmOnGpu::Make(p);
  ASSERT_OK(gpu.status());
  auto gemm = GroupedGemm::Create(p.config);
  ASSERT_OK(gemm.status());
  GroupedGemmArgs args = gpu->args();
  args.b = nullptr;
  EXPECT_THAT((*gemm)->Run(args, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("b is null")));
  args = gpu->args();
  args.a_scales = args.a;
  EXPECT_THAT((*gemm)->Run(args, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a_scales is given, but BF16 operands have no scales")));
  args = gpu->args();
  args.out = static_cast<char*>(args.out) + 8;
  EXPECT_THAT((*gemm)->Run(args, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("out"), HasSubstr("aligned to 16 bytes"))));
}

TEST_F(GroupedGemmTest, RefusesOutputsThatOverlapInputs) {
  const GemmProblem p = MakeGemmProblem({.n = 16, .k = 16}, {4, 4}, {.bias = true});
  absl::StatusOr<GemmOnGpu> gpu = GemmOnGpu::Make(p);
  ASSERT_OK(gpu.status());
  auto gemm = GroupedGemm::Create(p.config);
  ASSERT_OK(gemm.status());
  const auto with_out_at = [&](const void* place) {
    GroupedGemmArgs args = gpu->args();
    args.out = const_cast<void*>(place);
    return (*gemm)->Run(args, nullptr);
  };
  const auto refused = [](const std::string& name) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("GroupedGemmArgs::out overlaps GroupedGemmArgs::" + name),
                          HasSubstr("memory of its own")));
  };
  const GroupedGemmArgs& args = gpu->args();
  EXPECT_THAT(with_out_at(args.a), refused("a: "));
  EXPECT_THAT(with_out_at(static_cast<const char*>(args.a) + 16), refused("a: "));
  EXPECT_THAT(with_out_at(args.b), refused("b: "));
  // Of the last row of the last expert.
  constexpr size_t kWeightBytes = 2 * 16 * 16 * sizeof(uint16_t);
  EXPECT_THAT(with_out_at(static_cast<const char*>(args.b) + kWeightBytes - 16), refused("b: "));
  EXPECT_THAT(with_out_at(args.bias), refused("bias: "));
  EXPECT_OK(with_out_at(args.out));
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
}

// One object made outside of Node::Run, for example, and used by all ranks.
TEST_F(GroupedGemmTest, RefusesAnotherGpuThanThatOfCreate) {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  if (topology->gpus.size() < 2) GTEST_SKIP() << "one GPU";
  const GemmProblem p = MakeGemmProblem({.n = 16, .k = 16}, {4});
  absl::StatusOr<std::unique_ptr<GroupedGemm>> gemm = GroupedGemm::Create(p.config);
  ASSERT_OK(gemm.status());
  ASSERT_OK(OCTET_GPU(hipSetDevice(topology->gpus[1].device)));
  absl::StatusOr<GemmOnGpu> gpu = GemmOnGpu::Make(p);
  ASSERT_OK(gpu.status());
  EXPECT_THAT((*gemm)->Run(gpu->args(), nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat("created on GPU ", topology->gpus[0].device,
                                              ", and GPU ", topology->gpus[1].device,
                                              " is current; create one on each GPU"))));
}

TEST_F(GroupedGemmTest, RefusesFp8WithoutScales) {
  const GemmProblem p = MakeGemmProblem({.n = 16, .k = 16, .format = GemmFormat::kFp8}, {4});
  absl::StatusOr<GemmOnGpu> gpu = GemmOnGpu::Make(p);
  ASSERT_OK(gpu.status());
  auto gemm = GroupedGemm::Create(p.config);
  ASSERT_OK(gemm.status());
  GroupedGemmArgs args = gpu->args();
  args.b_scales = nullptr;
  EXPECT_THAT((*gemm)->Run(args, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("b_scales is null")));
}

TEST(GemmTilesTest, NamesAreParsed) {
  for (const GemmTiles tiles : kEveryTiles) {
    const absl::StatusOr<GemmTiles> parsed = ParseEnum<GemmTiles>("tiles", EnumName(tiles));
    ASSERT_OK(parsed.status());
    EXPECT_EQ(*parsed, tiles);
  }
  EXPECT_THAT(ParseEnum<GemmTiles>("tiles", "huge").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'huge' is not one of wide, medium, few64, few32, few16")));
}

}  // namespace
}  // namespace octet
