// What `octet gemm` measures and checks.
#include "tools/measure/gemm/gemm_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "octet/topology.h"
#include "tools/contenders/gemm_contender.h"
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

bool Emulated() {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  return topology.ok() && topology->emulated();
}

TEST(GemmRunTest, MeasuresAndChecksEveryTileShape) {
  for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
    GemmOptions options = SmallOptions();
    options.activation = activation;
    options.bias = true;
    options.row_scale = true;
    const absl::StatusOr<GemmReport> report = MeasureGemm(options, {});
    if (absl::IsUnavailable(report.status())) GTEST_SKIP() << report.status();
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->measurements.size(), 2U);
    EXPECT_TRUE(report->measurements[0].chosen);
    EXPECT_EQ(report->measurements[1].name, "few16");
    for (const GemmMeasurement& measured : report->measurements) {
      EXPECT_EQ(measured.checked, 160) << measured.name;
      EXPECT_EQ(measured.first_wrong, "");
      EXPECT_GT(measured.us.median, 0);
      EXPECT_DOUBLE_EQ(measured.tflops, options.Flops() / measured.us.median / 1e6);
      EXPECT_DOUBLE_EQ(measured.weights_tbps, options.WeightBytes() / measured.us.median / 1e6);
      EXPECT_TRUE(!Emulated() || !measured.of_peak.has_value());
      EXPECT_TRUE(!Emulated() || !measured.mhz.has_value());
    }
  }
}

TEST(GemmRunTest, ChecksFp8WithEachColumnsScales) {
  for (const GemmActivation activation : {GemmActivation::kNone, GemmActivation::kSwiGlu}) {
    for (const ScaleFormat scale_format : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
      GemmOptions options = SmallOptions();
      options.format = GemmFormat::kFp8;
      options.scale_format = scale_format;
      options.activation = activation;
      options.n = 528;
      options.k = 272;
      options.samples = 60;
      const absl::StatusOr<GemmReport> report = MeasureGemm(options, {});
      if (absl::IsUnavailable(report.status())) GTEST_SKIP() << report.status();
      ASSERT_TRUE(report.ok()) << report.status();
      for (const GemmMeasurement& measured : report->measurements) {
        EXPECT_EQ(measured.checked, 480);
        EXPECT_EQ(measured.first_wrong, "");
      }
    }
  }
}

TEST(GemmRunTest, ChecksMxfp4WithEachRowsScales) {
  for (const bool fp8_rows : {false, true}) {
    GemmOptions options = SmallOptions();
    options.format = GemmFormat::kMxfp4;
    options.fp8_rows = fp8_rows;
    options.activation = fp8_rows ? GemmActivation::kNone : GemmActivation::kSwiGlu;
    options.n = 528;
    options.k = 288;
    options.samples = 60;
    EXPECT_EQ(options.operand_name(), fp8_rows ? "fp8_mxfp4" : "mxfp4");
    const absl::StatusOr<GemmReport> report = MeasureGemm(options, {});
    if (absl::IsUnavailable(report.status())) GTEST_SKIP() << report.status();
    ASSERT_TRUE(report.ok()) << report.status();
    for (const GemmMeasurement& measured : report->measurements) {
      EXPECT_EQ(measured.checked, 480);
      EXPECT_EQ(measured.first_wrong, "");
    }
  }
}

// Multiplies on the host, whose memory an emulated GPU's is.
class HostContender final : public GemmContender {
 public:
  // Adds `error` to each element; fails in `failing`, "Prepare" or "Run".
  HostContender(float error, std::string failing) : error_(error), failing_(std::move(failing)) {}

  absl::string_view name() const override { return "host"; }
  absl::Status Prepare(const ContenderGemm& gemm) override {
    gemm_ = gemm;
    return Outcome("Prepare");
  }
  absl::Status Run(GpuStream stream) override {
    if (hipStreamSynchronize(stream) != hipSuccess) return absl::InternalError("no stream");
    for (const ExpertGemm& expert : gemm_.Experts()) Multiply(expert);
    return Outcome("Run");
  }

 private:
  absl::Status Outcome(absl::string_view call) const {
    if (call != failing_) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(call, " does not work"));
  }
  void Multiply(const ExpertGemm& expert) const {
    const auto* a = static_cast<const uint16_t*>(expert.a);
    const auto* b = static_cast<const uint16_t*>(expert.b);
    auto* out = static_cast<uint16_t*>(expert.out);
    for (int row = 0; row < expert.rows; ++row) {
      for (int column = 0; column < gemm_.n; ++column) {
        float sum = error_;
        for (int k = 0; k < gemm_.k; ++k) {
          sum += FloatFromBits(gemm_.dtype, a[row * gemm_.k + k]) *
                 FloatFromBits(gemm_.dtype, b[column * gemm_.k + k]);
        }
        out[row * gemm_.n + column] = BitsFromFloat(gemm_.dtype, sum);
      }
    }
  }

  const float error_;
  const std::string failing_;
  ContenderGemm gemm_ = {};
};

// Returns the report with one contender and one tile shape.
absl::StatusOr<GemmReport> ReportWith(float error, const std::string& failing,
                                      GemmOptions options = SmallOptions()) {
  options.tiles = {std::nullopt};
  std::vector<std::unique_ptr<GemmContender>> contenders;
  contenders.push_back(std::make_unique<HostContender>(error, failing));
  return MeasureGemm(options, contenders);
}

TEST(GemmRunTest, MeasuresAndChecksContenders) {
  if (!Emulated()) GTEST_SKIP() << "the host cannot multiply in a GPU's memory";
  for (const float error : {0.0F, 1.0F}) {
    const absl::StatusOr<GemmReport> report = ReportWith(error, "");
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->left_out, ::testing::IsEmpty());
    ASSERT_EQ(report->measurements.size(), 2U);
    const GemmMeasurement& measured = report->measurements.front();
    EXPECT_EQ(measured.name, "host");
    EXPECT_FALSE(measured.chosen);
    EXPECT_EQ(measured.checked, 160);
    EXPECT_EQ(measured.wrong > 0, error > 0) << measured.first_wrong;
    EXPECT_EQ(report->measurements.back().wrong, 0) << "each product begins with NaNs";
  }
}

TEST(GemmRunTest, NamesContendersThatAreLeftOut) {
  if (!Emulated()) GTEST_SKIP() << "the host cannot multiply in a GPU's memory";
  for (const std::string failing : {"Prepare", "Run"}) {
    const absl::StatusOr<GemmReport> report = ReportWith(0, failing);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->measurements.size(), 1U);
    ASSERT_EQ(report->left_out.size(), 1U);
    EXPECT_EQ(report->left_out[0].name, "host");
    EXPECT_EQ(report->left_out[0].reason, failing + " does not work");
  }
  GemmOptions with_bias = SmallOptions();
  with_bias.bias = true;
  GemmOptions fp8 = SmallOptions();
  fp8.format = GemmFormat::kFp8;
  fp8.k = 128;
  for (const auto& [options, reason] :
       {std::pair{with_bias, "it has no such epilogue for 16-bit outputs"},
        std::pair{fp8, "octet calls it without scales for 1x128 and 128x128 elements"}}) {
    const absl::StatusOr<GemmReport> report = ReportWith(0, "", options);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->left_out.size(), 1U);
    EXPECT_EQ(report->left_out[0].reason, reason);
    EXPECT_EQ(report->measurements.front().first_wrong, "");
  }
}

TEST(GemmRunTest, ThePlatformsContendersSayWhatTheyLack) {
  GemmOptions options = SmallOptions();
  options.n = 128;
  options.k = 128;
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  if (!topology.ok()) GTEST_SKIP() << topology.status();
  const std::vector<std::unique_ptr<GemmContender>> contenders =
      MakeGemmContenders(topology->platform);
  const absl::StatusOr<GemmReport> report = MeasureGemm(options, contenders);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->measurements.size() + report->left_out.size(),
            contenders.size() + options.tiles.size());
  for (const LeftOutContender& contender : report->left_out) EXPECT_NE(contender.reason, "");
  for (const GemmMeasurement& measured : report->measurements) {
    EXPECT_EQ(measured.first_wrong, "") << measured.name;
  }
}

TEST(GemmRunTest, ContendersGetTheExpertsThatHaveRows) {
  const std::vector<uint16_t> memory(64);
  std::vector<uint16_t> out(64);
  const ContenderGemm gemm = {.rows = {1, 0, 2},
                              .n = 4,
                              .k = 8,
                              .dtype = DType::kBFloat16,
                              .a = memory.data(),
                              .b = memory.data(),
                              .out = out.data()};
  const std::vector<ExpertGemm> experts = gemm.Experts();
  ASSERT_EQ(experts.size(), 2U);
  EXPECT_EQ(experts[0].a, memory.data());
  EXPECT_EQ(experts[1].rows, 2);
  EXPECT_EQ(experts[1].a, memory.data() + 8);
  EXPECT_EQ(experts[1].b, memory.data() + std::size_t{2} * 4 * 8);
  EXPECT_EQ(experts[1].out, out.data() + 4);
}

TEST(GemmRunTest, CountsWork) {
  const GemmOptions options = SmallOptions();
  EXPECT_EQ(options.Flops(), 2.0 * 45 * 64 * 72);
  EXPECT_EQ(options.WeightBytes(), 2.0 * 64 * 72 * 2) << "of the experts that have rows";
}

TEST(GemmRunTest, DumpsOperandsAndOutput) {
  GemmOptions options = SmallOptions();
  options.dump = ::testing::TempDir() + "/gemm_dump";
  const absl::StatusOr<GemmReport> report = MeasureGemm(options, {});
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
  options.format = GemmFormat::kFp8;
  options.n = 272;
  options.k = 144;
  ASSERT_TRUE(MeasureGemm(options, {}).ok());
  EXPECT_THAT(shape("a_scales"), ::testing::ElementsAre(45, 2));
  EXPECT_THAT(shape("b_scales"), ::testing::ElementsAre(3, 3, 2));
  options.activation = GemmActivation::kSwiGlu;
  options.scale_format = ScaleFormat::kUe8m0;
  ASSERT_TRUE(MeasureGemm(options, {}).ok());
  EXPECT_THAT(shape("b_scales"), ::testing::ElementsAre(3, 2, 2, 4));
  options.format = GemmFormat::kMxfp4;
  options.k = 160;
  ASSERT_TRUE(MeasureGemm(options, {}).ok());
  EXPECT_THAT(shape("a"), ::testing::ElementsAre(45, 160));
  EXPECT_THAT(shape("b"), ::testing::ElementsAre(3, 272, 80));
  EXPECT_THAT(shape("b_scales"), ::testing::ElementsAre(3, 272, 16));
}

}  // namespace
}  // namespace octet
