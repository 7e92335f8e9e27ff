#include "tools/measure/gemm_run.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/gemm_config.h"
#include "octet/topology.h"
#include "runtime/device_memory.h"
#include "runtime/gpu_status.h"
#include "runtime/scoped_event.h"
#include "runtime/status_macros.h"
#include "tools/measure/clock_probe.h"
#include "tools/measure/gemm_operands.h"
#include "tools/measure/gpu_rates.h"
#include "tools/support/atomic_file.h"
#include "tools/support/npy.h"

namespace octet {
namespace {

constexpr absl::Duration kIdle = absl::Milliseconds(200);
constexpr size_t kFlushBytes = size_t{512} << 20;
constexpr size_t kEmulatedFlushBytes = size_t{1} << 20;

// The operands in the GPU's memory.
struct Operands {
  DeviceMemory a, b, a_scales, b_scales, out, offsets, bias, row_scale, flush;
  std::vector<int32_t> host_offsets;
  std::vector<float> host_bias;
  std::vector<float> host_row_scale;
};

template <typename T>
absl::StatusOr<DeviceMemory> Upload(const std::vector<T>& host) {
  OCTET_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(host.size() * sizeof(T)));
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(memory.as<void>(), host.data(), host.size() * sizeof(T), hipMemcpyHostToDevice));
  return memory;
}

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(rng);
  return values;
}

absl::StatusOr<Operands> MakeOperands(const GemmOptions& options, size_t flush_bytes) {
  const GroupedGemmConfig config = options.Config();
  Operands operands;
  operands.host_offsets.resize(options.rows.size() + 1);
  std::partial_sum(options.rows.begin(), options.rows.end(), operands.host_offsets.begin() + 1);
  OCTET_ASSIGN_OR_RETURN(operands.offsets, Upload(operands.host_offsets));
  OCTET_ASSIGN_OR_RETURN(operands.a,
                         RandomGemmElements(config, config.max_rows * config.k, 2 * options.seed));
  OCTET_ASSIGN_OR_RETURN(operands.b,
                         RandomGemmElements(config, int64_t{config.experts} * config.n * config.k,
                                            2 * options.seed + 1));
  if (config.format == GemmFormat::kFp8) {
    OCTET_ASSIGN_OR_RETURN(operands.a_scales,
                           RandomGemmScales(config, config.max_rows, options.seed));
    OCTET_ASSIGN_OR_RETURN(
        operands.b_scales,
        RandomGemmScales(config, int64_t{config.experts} * config.weight_scale_rows(),
                         options.seed + 1));
  }
  OCTET_ASSIGN_OR_RETURN(operands.out,
                         DeviceMemory::Allocate(static_cast<size_t>(config.max_rows) *
                                                static_cast<size_t>(config.out_columns()) *
                                                InfoOf(config.dtype).bytes));
  OCTET_ASSIGN_OR_RETURN(operands.flush, DeviceMemory::Allocate(flush_bytes));
  if (options.bias) {
    operands.host_bias = RandomFloats(
        static_cast<size_t>(config.experts) * static_cast<size_t>(config.n), options.seed);
    OCTET_ASSIGN_OR_RETURN(operands.bias, Upload(operands.host_bias));
  }
  if (options.row_scale) {
    operands.host_row_scale = RandomFloats(static_cast<size_t>(config.max_rows), options.seed + 1);
    OCTET_ASSIGN_OR_RETURN(operands.row_scale, Upload(operands.host_row_scale));
  }
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
  return operands;
}

absl::StatusOr<std::vector<uint8_t>> Download(const DeviceMemory& memory) {
  std::vector<uint8_t> host(memory.bytes());
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(host.data(), memory.as<void>(), host.size(), hipMemcpyDeviceToHost));
  return host;
}

GroupedGemmArgs ArgsOf(const GemmOptions& options, const Operands& operands) {
  return {
      .a = operands.a.as<void>(),
      .b = operands.b.as<void>(),
      .a_scales = operands.a_scales.as<void>(),
      .b_scales = operands.b_scales.as<void>(),
      .expert_offsets = operands.offsets.as<int32_t>(),
      .bias = options.bias ? operands.bias.as<float>() : nullptr,
      .row_scale = options.row_scale ? operands.row_scale.as<float>() : nullptr,
      .out = operands.out.as<void>(),
  };
}

absl::Status CheckSamples(const GemmOptions& options, const Operands& operands,
                          GemmMeasurement& result) {
  OCTET_ASSIGN_OR_RETURN(GemmCheck check, CheckGemmSamples({.config = options.Config(),
                                                            .args = ArgsOf(options, operands),
                                                            .offsets = operands.host_offsets,
                                                            .bias = operands.host_bias,
                                                            .row_scale = operands.host_row_scale},
                                                           options.samples, options.seed));
  result.checked = check.checked;
  result.wrong = check.wrong;
  if (check.wrong > 0) result.first_wrong = absl::StrCat(result.name, ": ", check.first_wrong);
  return absl::OkStatus();
}

using Enqueue = absl::FunctionRef<absl::Status(hipStream_t)>;

struct TimedProduct {
  double us = 0;
  std::optional<double> mhz;
};

absl::StatusOr<TimedProduct> TimeOnce(const DeviceMemory& flush, const ClockProbe& clock,
                                      Enqueue enqueue) {
  OCTET_ASSIGN_OR_RETURN(ScopedEvent start, ScopedEvent::Create());
  OCTET_ASSIGN_OR_RETURN(ScopedEvent stop, ScopedEvent::Create());
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(flush.as<void>(), 0, flush.bytes(), nullptr));
  OCTET_RETURN_IF_ERROR(clock.Begin(nullptr));
  OCTET_RETURN_IF_ERROR(start.Record(nullptr));
  OCTET_RETURN_IF_ERROR(enqueue(nullptr));
  OCTET_RETURN_IF_ERROR(stop.Record(nullptr));
  OCTET_RETURN_IF_ERROR(clock.End(nullptr));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
  TimedProduct product;
  OCTET_ASSIGN_OR_RETURN(product.us, stop.MicrosecondsSince(start));
  OCTET_ASSIGN_OR_RETURN(product.mhz, clock.Megahertz());
  return product;
}

// Times a series and checks its last output, which begins as NaNs.
absl::StatusOr<GemmMeasurement> Measure(const GemmOptions& options, const Operands& operands,
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
    OCTET_ASSIGN_OR_RETURN(const TimedProduct product, TimeOnce(operands.flush, clock, enqueue));
    if (i < options.warmup) continue;
    times.push_back(product.us);
    if (product.mhz.has_value()) clocks.push_back(*product.mhz);
  }
  result.us = Summarize(std::move(times));
  if (!clocks.empty()) result.mhz = Summarize(std::move(clocks)).median;
  OCTET_RETURN_IF_ERROR(CheckSamples(options, operands, result));
  return result;
}

absl::Status Dump(const GemmOptions& options, const Operands& operands) {
  const GroupedGemmConfig config = options.Config();
  OCTET_RETURN_IF_ERROR(MakeFolder(options.dump));
  const bool fp8 = config.format == GemmFormat::kFp8;
  const NpyType out_type = config.dtype == DType::kFloat16 ? NpyType::kFloat16 : NpyType::kUint16;
  const NpyType type = fp8 ? NpyType::kUint8 : out_type;
  const auto path = [&options](const char* name) {
    return absl::StrCat(options.dump, "/", name, ".npy");
  };
  const auto write = [&path](const char* name, const DeviceMemory& memory, NpyType element,
                             const std::vector<int64_t>& shape) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> host, Download(memory));
    return WriteNpy(path(name), element, shape, host.data());
  };
  OCTET_RETURN_IF_ERROR(write("a", operands.a, type, {config.max_rows, config.k}));
  OCTET_RETURN_IF_ERROR(write("b", operands.b, type, {config.experts, config.n, config.k}));
  OCTET_RETURN_IF_ERROR(
      write("out", operands.out, out_type, {config.max_rows, config.out_columns()}));
  if (fp8) {
    const bool ue8m0 = config.scale_format == ScaleFormat::kUe8m0;
    const NpyType scale_type = ue8m0 ? NpyType::kUint8 : NpyType::kFloat32;
    const int64_t columns = int64_t{config.scale_words()} * (ue8m0 ? 4 : 1);
    OCTET_RETURN_IF_ERROR(
        write("a_scales", operands.a_scales, scale_type, {config.max_rows, columns}));
    const int64_t rows = config.weight_scale_rows();
    const bool gated = config.activation == GemmActivation::kSwiGlu;
    const std::vector<int64_t> shape =
        gated ? std::vector<int64_t>{config.experts, 2, rows / 2, columns}
              : std::vector<int64_t>{config.experts, rows, columns};
    OCTET_RETURN_IF_ERROR(write("b_scales", operands.b_scales, scale_type, shape));
  } else {
    OCTET_RETURN_IF_ERROR(RemoveFile(path("a_scales")));
    OCTET_RETURN_IF_ERROR(RemoveFile(path("b_scales")));
  }
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

absl::StatusOr<GemmMeasurement> MeasureTiles(const GemmOptions& options, const Operands& operands,
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
                                                 const Operands& operands, const ClockProbe& clock,
                                                 GemmContender& contender) {
  if (options.activation != GemmActivation::kNone || options.bias || options.row_scale) {
    return absl::UnavailableError("it has no such epilogue for 16-bit outputs");
  }
  if (options.format == GemmFormat::kFp8) {
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

GroupedGemmConfig GemmOptions::Config() const {
  GroupedGemmConfig config = {.n = n,
                              .k = k,
                              .dtype = dtype,
                              .format = format,
                              .scale_format = scale_format,
                              .activation = activation};
  config.experts = static_cast<int>(rows.size());
  config.max_rows = std::max<int64_t>(1, std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  config.use_measured_tuning = use_measured_tuning;
  config.blocks = blocks;
  return config;
}

double GemmOptions::Flops() const {
  return 2.0 * std::accumulate(rows.begin(), rows.end(), 0.0) * n * k;
}

double GemmOptions::WeightBytes() const {
  const auto experts = rows.size() - static_cast<size_t>(std::count(rows.begin(), rows.end(), 0));
  return static_cast<double>(experts) * n * k * static_cast<double>(element_bytes());
}

size_t GemmOptions::element_bytes() const {
  return format == GemmFormat::kFp8 ? 1 : InfoOf(dtype).bytes;
}

absl::string_view GemmOptions::operand_name() const { return EnumName(ElementOf(Config())); }

absl::StatusOr<GemmReport> MeasureGemm(
    const GemmOptions& options, absl::Span<const std::unique_ptr<GemmContender>> contenders) {
  OCTET_ASSIGN_OR_RETURN(const Topology topology, DiscoverTopology());
  if (topology.gpus.empty()) return absl::UnavailableError("there is no GPU");
  OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(topology.gpus[0].device));
  GemmReport report;
  report.gpu = topology.gpus[0].name;
  OCTET_ASSIGN_OR_RETURN(
      const Operands operands,
      MakeOperands(options, topology.platform == "emulation" ? kEmulatedFlushBytes : kFlushBytes));
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
