#include "bench/gemm_benchmarks.h"

#include <array>
#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bench/measured.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/gemm/gemm_run.h"

namespace octet {
namespace {

// `experts` experts of `rows` rows each.
struct Shape {
  absl::string_view name;
  int experts;
  int rows;
  int n;
  int k;
  GemmFormat format = GemmFormat::kSame;
};

// Experts of one of four or eight GPUs, in BF16 unless named otherwise: gate and up together, and
// down.
constexpr auto kShapes = std::to_array<Shape>({
    {.name = "fused_16x16384", .experts = 16, .rows = 16384, .n = 960, .k = 1536},
    {.name = "dsv3_up_64x512", .experts = 64, .rows = 512, .n = 4096, .k = 7168},
    {.name = "dsv3_down_64x512", .experts = 64, .rows = 512, .n = 7168, .k = 2048},
    {.name = "qwen3_up_32x1024", .experts = 32, .rows = 1024, .n = 3072, .k = 4096},
    {.name = "qwen3_down_32x1024", .experts = 32, .rows = 1024, .n = 4096, .k = 1536},
    {.name = "dsv3_up_64x16", .experts = 64, .rows = 16, .n = 4096, .k = 7168},
    {.name = "dsv3_down_64x16", .experts = 64, .rows = 16, .n = 7168, .k = 2048},
    {.name = "dsv3_up_fp8_64x512",
     .experts = 64,
     .rows = 512,
     .n = 4096,
     .k = 7168,
     .format = GemmFormat::kFp8},
    {.name = "dsv3_up_fp8_64x16",
     .experts = 64,
     .rows = 16,
     .n = 4096,
     .k = 7168,
     .format = GemmFormat::kFp8},
});
// For an emulated GPU.
constexpr auto kSmallShapes = std::to_array<Shape>({
    {.name = "small_4x32", .experts = 4, .rows = 32, .n = 128, .k = 64},
    {.name = "small_fp8_2x3",
     .experts = 2,
     .rows = 3,
     .n = 64,
     .k = 128,
     .format = GemmFormat::kFp8},
});

absl::StatusOr<double> Measure(benchmark::State& state, const GemmOptions& options) {
  OCTET_ASSIGN_OR_RETURN(const GemmReport report, MeasureGemm(options, {}));
  const GemmMeasurement& measured = report.measurements.front();
  if (measured.wrong > 0) return absl::DataLossError(measured.first_wrong);
  state.counters["TFLOPps"] = measured.tflops;
  state.counters["weights_TBps"] = measured.weights_tbps;
  if (measured.of_peak.has_value()) state.counters["of_peak"] = *measured.of_peak;
  if (measured.mhz.has_value()) state.counters["clock_MHz"] = *measured.mhz;
  return measured.us.median;
}

}  // namespace

void RegisterGemmBenchmarks(Session& session) {
  constexpr int kIters = 12;
  const bool small = session.emulated() && !session.all_shapes();
  for (const Shape& shape :
       small ? absl::Span<const Shape>(kSmallShapes) : absl::Span<const Shape>(kShapes)) {
    GemmOptions options;
    options.rows.assign(static_cast<size_t>(shape.experts), shape.rows);
    options.n = shape.n;
    options.k = shape.k;
    options.format = shape.format;
    options.tiles = {std::nullopt};
    if (session.emulated()) options.warmup = 0;
    options.iters = session.emulated() ? 1 : kIters;
    if (!session.options().check) options.samples = 0;
    RegisterMeasured(session, absl::StrCat("gemm/", shape.name),
                     [options](benchmark::State& state) { return Measure(state, options); });
  }
}

}  // namespace octet
