#include "tools/measure/gemm/gemm_setup.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/types/gemm_element.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/gpu/scoped_event.h"

namespace octet {
namespace {

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

}  // namespace

GroupedGemmConfig GemmOptions::Config() const {
  GroupedGemmConfig config = {.n = n,
                              .k = k,
                              .dtype = dtype,
                              .output = output,
                              .format = format,
                              .fp8_rows = fp8_rows,
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
  constexpr double kBits = 8;  // of a byte
  return static_cast<double>(experts) * n * k * InfoOf(FormatOf(dtype, format)).bits / kBits;
}

size_t GemmOptions::element_bytes() const { return Config().row_format().Bytes(1); }

absl::string_view GemmOptions::operand_name() const {
  const GroupedGemmConfig config = Config();
  return EnumName(ElementOf(config.weight_format(), config.row_format()));
}

absl::StatusOr<GemmOperandSet> MakeOperands(const GemmOptions& options, bool emulated) {
  const GroupedGemmConfig config = options.Config();
  GemmOperandSet operands;
  operands.host_offsets.resize(options.rows.size() + 1);
  std::partial_sum(options.rows.begin(), options.rows.end(), operands.host_offsets.begin() + 1);
  OCTET_ASSIGN_OR_RETURN(operands.offsets, Upload(operands.host_offsets));
  OCTET_ASSIGN_OR_RETURN(
      operands.a,
      RandomGemmElements(config.row_format(), config.max_rows * config.k, 2 * options.seed));
  OCTET_ASSIGN_OR_RETURN(
      operands.b,
      RandomGemmElements(config.weight_format(), int64_t{config.experts} * config.n * config.k,
                         2 * options.seed + 1));
  if (config.row_format().has_scales()) {
    OCTET_ASSIGN_OR_RETURN(
        operands.a_scales,
        RandomGemmScales(config.row_format(), config.max_rows * config.row_scale_words(),
                         options.seed));
  }
  if (config.weight_format().has_scales()) {
    OCTET_ASSIGN_OR_RETURN(operands.b_scales,
                           RandomGemmScales(config.weight_format(),
                                            int64_t{config.experts} * config.weight_scale_rows() *
                                                config.scale_words(),
                                            options.seed + 1));
  }
  OCTET_ASSIGN_OR_RETURN(
      operands.out,
      DeviceMemory::Allocate(static_cast<size_t>(config.max_rows) *
                             static_cast<size_t>(config.out_columns()) * config.out_bytes()));
  OCTET_ASSIGN_OR_RETURN(operands.flush, L2Flush::Create(emulated));
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

GroupedGemmArgs ArgsOf(const GemmOptions& options, const GemmOperandSet& operands) {
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

absl::StatusOr<GemmCheck> CheckOperands(const GemmOptions& options,
                                        const GemmOperandSet& operands) {
  return CheckGemmSamples({.config = options.Config(),
                           .args = ArgsOf(options, operands),
                           .offsets = operands.host_offsets,
                           .bias = operands.host_bias,
                           .row_scale = operands.host_row_scale},
                          options.samples, options.seed);
}

absl::StatusOr<TimedProduct> TimeProduct(const L2Flush& flush, const ClockProbe& clock,
                                         absl::FunctionRef<absl::Status(GpuStream)> enqueue) {
  OCTET_ASSIGN_OR_RETURN(ScopedEvent start, ScopedEvent::Create());
  OCTET_ASSIGN_OR_RETURN(ScopedEvent stop, ScopedEvent::Create());
  OCTET_RETURN_IF_ERROR(flush.Enqueue(nullptr));
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

}  // namespace octet
