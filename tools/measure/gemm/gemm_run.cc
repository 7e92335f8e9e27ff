#include "tools/measure/gemm/gemm_run.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tools/measure/gemm/gemm_operands.h"
#include "tools/measure/probe/clock_probe.h"
#include "tools/measure/probe/gpu_rates.h"
#include "tools/support/atomic_file.h"
#include "tools/support/npy.h"

namespace octet {
namespace {

constexpr absl::Duration kIdle = absl::Milliseconds(200);

absl::Status CheckSamples(const GemmOptions& options, const GemmOperandSet& operands,
                          GemmMeasurement& result) {
  OCTET_ASSIGN_OR_RETURN(GemmCheck check, CheckOperands(options, operands));
  result.checked = check.checked;
  result.wrong = check.wrong;
  if (check.wrong > 0) result.first_wrong = absl::StrCat(result.name, ": ", check.first_wrong);
  return absl::OkStatus();
}

using Enqueue = absl::FunctionRef<absl::Status(hipStream_t)>;

// Times a series and checks its last output, which begins as NaNs.
absl::StatusOr<GemmMeasurement> Measure(const GemmOptions& options, const GemmOperandSet& operands,
                                        const ClockProbe& clock, std::string name,
                                        Enqueue enqueue) {
  GemmMeasurement result;
  result.name = std::move(name);
  OCTET_RETURN_IF_GPU_ERROR(hipMemset(operands.out.as<void>(), 0xff, operands.out.bytes()));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
  absl::SleepFor(kIdle);
  std::vector<double> times;
  std::vector<double> clocks;
  for (int i = 0; i < options.warmup + options.iters; ++i) {
    OCTET_ASSIGN_OR_RETURN(const TimedProduct product, TimeProduct(operands.flush, clock, enqueue));
    if (i < options.warmup) continue;
    times.push_back(product.us);
    if (product.mhz.has_value()) clocks.push_back(*product.mhz);
  }
  result.us = Summarize(std::move(times));
  if (!clocks.empty()) result.mhz = Summarize(std::move(clocks)).median;
  OCTET_RETURN_IF_ERROR(CheckSamples(options, operands, result));
  return result;
}

absl::StatusOr<std::vector<uint8_t>> Download(const DeviceMemory& memory) {
  std::vector<uint8_t> host(memory.bytes());
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(host.data(), memory.as<void>(), host.size(), hipMemcpyDeviceToHost));
  return host;
}

absl::Status Dump(const GemmOptions& options, const GemmOperandSet& operands) {
  const GroupedGemmConfig config = options.Config();
  OCTET_RETURN_IF_ERROR(MakeFolder(options.dump));
  const bool scaled = config.weight_format().has_scales();
  const NpyType dtype = config.dtype == DType::kFloat16 ? NpyType::kFloat16 : NpyType::kUint16;
  const bool scaled_rows = config.row_format().has_scales();
  const NpyType type = scaled_rows ? NpyType::kUint8 : dtype;
  const NpyType weight_type = scaled ? NpyType::kUint8 : dtype;
  constexpr int kByte = 8;  // bits
  const int per_byte = std::max(kByte / InfoOf(config.weight_format()).bits, 1);
  const NpyType out_type = config.output == GemmOutput::kFloat32 ? NpyType::kFloat32 : dtype;
  const auto path = [&options](const char* name) {
    return absl::StrCat(options.dump, "/", name, ".npy");
  };
  const auto write = [&path](const char* name, const DeviceMemory& memory, NpyType element,
                             const std::vector<int64_t>& shape) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> host, Download(memory));
    return WriteNpy(path(name), element, shape, host.data());
  };
  OCTET_RETURN_IF_ERROR(write("a", operands.a, type, {config.max_rows, config.k}));
  OCTET_RETURN_IF_ERROR(
      write("b", operands.b, weight_type, {config.experts, config.n, config.k / per_byte}));
  OCTET_RETURN_IF_ERROR(
      write("out", operands.out, out_type, {config.max_rows, config.out_columns()}));
  if (scaled) {
    const auto type_of = [](const WeightFormat& format) {
      return format.scale == ScaleFormat::kUe8m0 ? NpyType::kUint8 : NpyType::kFloat32;
    };
    const auto columns_of = [](const WeightFormat& format, int words) {
      return int64_t{words} * (format.scale == ScaleFormat::kUe8m0 ? 4 : 1);
    };
    if (scaled_rows) {
      const WeightFormat format = config.row_format();
      OCTET_RETURN_IF_ERROR(write("a_scales", operands.a_scales, type_of(format),
                                  {config.max_rows, columns_of(format, config.row_scale_words())}));
    }
    const WeightFormat format = config.weight_format();
    const int64_t columns = columns_of(format, config.scale_words());
    const int64_t rows = config.weight_scale_rows();
    const bool gated = config.activation == GemmActivation::kSwiGlu;
    const std::vector<int64_t> shape =
        gated && format.block_rows > 1 ? std::vector<int64_t>{config.experts, 2, rows / 2, columns}
                                       : std::vector<int64_t>{config.experts, rows, columns};
    OCTET_RETURN_IF_ERROR(write("b_scales", operands.b_scales, type_of(format), shape));
  } else {
    OCTET_RETURN_IF_ERROR(RemoveFile(path("b_scales")));
  }
  if (!scaled_rows) OCTET_RETURN_IF_ERROR(RemoveFile(path("a_scales")));
  const auto write_floats = [&options](const char* name, const std::vector<float>& values,
                                       const std::vector<int64_t>& shape) {
    if (values.empty()) return RemoveFile(absl::StrCat(options.dump, "/", name, ".npy"));
    return WriteNpy(absl::StrCat(options.dump, "/", name, ".npy"), NpyType::kFloat32, shape,
                    values.data());
  };
  OCTET_RETURN_IF_ERROR(write_floats("bias", operands.host_bias, {config.experts, config.n}));
  OCTET_RETURN_IF_ERROR(write_floats("row_scale", operands.host_row_scale, {config.max_rows}));
  return WriteNpy(absl::StrCat(options.dump, "/offsets.npy"), NpyType::kInt32,
                  {static_cast<int64_t>(operands.host_offsets.size())},
                  operands.host_offsets.data());
}

absl::StatusOr<GemmMeasurement> MeasureTiles(const GemmOptions& options,
                                             const GemmOperandSet& operands,
                                             const ClockProbe& clock,
                                             std::optional<GemmTiles> tiles) {
  GroupedGemmConfig config = options.Config();
  config.tiles = tiles;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> gemm, GroupedGemm::Create(config));
  const GroupedGemmArgs args = ArgsOf(options, operands);
  OCTET_ASSIGN_OR_RETURN(
      GemmMeasurement measured,
      Measure(options, operands, clock, std::string(EnumName(gemm->tiles())),
              [&gemm, &args](hipStream_t stream) { return gemm->Run(args, stream); }));
  measured.chosen = !tiles.has_value();
  return measured;
}

absl::StatusOr<GemmMeasurement> MeasureContender(const GemmOptions& options,
                                                 const GemmOperandSet& operands,
                                                 const ClockProbe& clock,
                                                 GemmContender& contender) {
  if (options.activation != GemmActivation::kNone || options.bias || options.row_scale ||
      options.output != GemmOutput::kDtype) {
    return absl::UnavailableError("it has no such epilogue for 16-bit outputs");
  }
  if (options.Config().weight_format().has_scales()) {
    return absl::UnavailableError("octet calls it without scales for 1x128 and 128x128 elements");
  }
  OCTET_RETURN_IF_ERROR(
      contender.Prepare({options.rows, options.n, options.k, options.dtype, operands.a.as<void>(),
                         operands.b.as<void>(), operands.out.as<void>()}));
  return Measure(options, operands, clock, std::string(contender.name()),
                 [&contender](hipStream_t stream) { return contender.Run(stream); });
}

void SetRates(const GemmOptions& options, const GpuRates& rates, GemmMeasurement& measured) {
  constexpr double kTera = 1e-6;  // of 1 / µs
  measured.tflops = options.Flops() / measured.us.median * kTera;
  measured.weights_tbps = options.WeightBytes() / measured.us.median * kTera;
  if (const auto peak = rates.PeakTeraflops(options.element_bytes()); peak.has_value()) {
    measured.of_peak = measured.tflops / *peak;
  }
}

}  // namespace

absl::StatusOr<GemmReport> MeasureGemm(
    const GemmOptions& options, absl::Span<const std::unique_ptr<GemmContender>> contenders) {
  OCTET_ASSIGN_OR_RETURN(const Topology topology, DiscoverTopology());
  if (topology.gpus.empty()) return absl::UnavailableError("there is no GPU");
  OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(topology.gpus[0].device));
  GemmReport report;
  report.gpu = topology.gpus[0].name;
  OCTET_ASSIGN_OR_RETURN(const GemmOperandSet operands, MakeOperands(options, topology.emulated()));
  OCTET_ASSIGN_OR_RETURN(const GpuRates rates, CurrentGpuRates(topology.platform));
  OCTET_ASSIGN_OR_RETURN(const ClockProbe clock, ClockProbe::Create(rates));
  for (const std::unique_ptr<GemmContender>& contender : contenders) {
    absl::StatusOr<GemmMeasurement> measured =
        MeasureContender(options, operands, clock, *contender);
    if (measured.ok()) {
      report.measurements.push_back(*std::move(measured));
    } else {
      report.left_out.push_back(
          {std::string(contender->name()), std::string(measured.status().message())});
    }
  }
  for (const std::optional<GemmTiles>& tiles : options.tiles) {
    OCTET_ASSIGN_OR_RETURN(GemmMeasurement measured, MeasureTiles(options, operands, clock, tiles));
    report.measurements.push_back(std::move(measured));
  }
  for (GemmMeasurement& measured : report.measurements) SetRates(options, rates, measured);
  if (!options.dump.empty()) OCTET_RETURN_IF_ERROR(Dump(options, operands));
  return report;
}

}  // namespace octet
