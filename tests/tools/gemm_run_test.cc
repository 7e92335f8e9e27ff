// What `octet gemm` measures and checks.
#include "tools/measure/gemm_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/support/npy.h"

namespace octet {
namespace {

GemmOptions SmallOptions() {
  GemmOptions options;
  options.rows = {5, 0, 40};
  options.n = 64;
  options.k = 72;
  options.iters = 1;
  options.warmup = 0;
  options.samples = 20;
  options.tiles = {std::nullopt, GemmTiles::kFew16};
  return options;
}

TEST(GemmRunTest, MeasuresAndChecksEveryTileShape) {
  for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
    GemmOptions options = SmallOptions();
    options.activation = activation;
    options.bias = true;
    options.row_scale = true;
    const absl::StatusOr<GemmReport> report = MeasureGemm(options);
    if (absl::IsUnavailable(report.status())) GTEST_SKIP() << report.status();
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->measurements.size(), 2U);
    EXPECT_TRUE(report->measurements[0].chosen);
    EXPECT_EQ(report->measurements[1].name, "few16");
    for (const GemmMeasurement& measured : report->measurements) {
      EXPECT_EQ(measured.checked, 160) << measured.name;
      EXPECT_EQ(measured.first_wrong, "");
      EXPECT_GT(measured.us.median, 0);
    }
  }
}

TEST(GemmRunTest, CountsWork) {
  const GemmOptions options = SmallOptions();
  EXPECT_EQ(options.Flops(), 2.0 * 45 * 64 * 72);
  EXPECT_EQ(options.WeightBytes(), 2.0 * 64 * 72 * 2) << "of the experts that have rows";
}

TEST(GemmRunTest, DumpsOperandsAndOutput) {
  GemmOptions options = SmallOptions();
  options.dump = ::testing::TempDir() + "/gemm_dump";
  const absl::StatusOr<GemmReport> report = MeasureGemm(options);
  if (absl::IsUnavailable(report.status())) GTEST_SKIP() << report.status();
  ASSERT_TRUE(report.ok()) << report.status();
  const auto shape = [&options](const std::string& name) {
    constexpr size_t kMostBytes = 1 << 20;
    const absl::StatusOr<NpyArray> array = ReadNpy(options.dump + "/" + name + ".npy", kMostBytes);
    EXPECT_TRUE(array.ok()) << array.status();
    return array.ok() ? array->shape : std::vector<int64_t>();
  };
  EXPECT_THAT(shape("a"), ::testing::ElementsAre(45, 72));
  EXPECT_THAT(shape("b"), ::testing::ElementsAre(3, 64, 72));
  EXPECT_THAT(shape("out"), ::testing::ElementsAre(45, 64));
  EXPECT_THAT(shape("offsets"), ::testing::ElementsAre(4));
}

}  // namespace
}  // namespace octet
