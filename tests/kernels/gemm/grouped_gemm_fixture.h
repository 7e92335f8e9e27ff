// A fixture for tests of grouped products.
#ifndef OCTET_TESTS_KERNELS_GEMM_GROUPED_GEMM_FIXTURE_H_
#define OCTET_TESTS_KERNELS_GEMM_GROUPED_GEMM_FIXTURE_H_

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
#include "tests/support/gemm_problem.h"
#include "tests/support/node/node_fixture.h"

namespace octet {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr GemmTiles kEveryTiles[] = {GemmTiles::kWide, GemmTiles::kMedium, GemmTiles::kFew64,
                                            GemmTiles::kFew32, GemmTiles::kFew16};

class GroupedGemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    if (!topology.ok() || topology->gpus.empty()) GTEST_SKIP() << "no GPU";
    ASSERT_OK(OCTET_GPU(hipSetDevice(topology->gpus[0].device)));
  }

  // Computes and checks the problem with every tile shape.
  static void Check(GemmProblem p) {
    const std::vector<GemmExpectation> expected = ExpectedGemm(p);
    for (const GemmTiles tiles : kEveryTiles) {
      p.config.tiles = tiles;
      const absl::StatusOr<std::vector<uint16_t>> out = ComputeGemm(p);
      ASSERT_OK(out.status()) << p.Text();
      EXPECT_EQ(FirstWrongElement(p, expected, *out), "") << EnumName(tiles) << " " << p.Text();
    }
  }
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_GEMM_GROUPED_GEMM_FIXTURE_H_
