#include "tools/measure/probe/gpu_rates.h"

#include <hip/hip_runtime.h>

#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

struct MatrixRate {
  absl::string_view platform;
  int major;
  int minor;
  double flop_per_cycle;
};

// From the vendors' peaks: peak / (compute units · clock).
constexpr MatrixRate kMatrixRates[] = {
    {"nvidia", 9, 0, 4096},  // H100, H200: 989.4 TFLOP/s, 132 SMs, 1830 MHz
    {"amd", 9, 0, 1024},     // MI250X: 383 TFLOP/s, 220 CUs, 1700 MHz
    {"amd", 9, 4, 2048},     // MI300X: 1307.4 TFLOP/s, 304 CUs, 2100 MHz
    {"amd", 9, 5, 4096},     // MI355X: 2516.6 TFLOP/s, 256 CUs, 2400 MHz
};

}  // namespace

std::optional<double> GpuRates::PeakTeraflops(size_t element_bytes) const {
  constexpr double kTeraPerMega = 1e-6;
  constexpr double kElementBytes = 2;  // of flop_per_cycle
  if (flop_per_cycle == 0) return {};
  return compute_units * flop_per_cycle * max_mhz * kTeraPerMega * kElementBytes /
         static_cast<double>(element_bytes);
}

namespace {

// AMD's drivers name clocks of which each kind of memory makes something else.
absl::StatusOr<std::optional<double>> MemoryTerabytes(absl::string_view platform, int device) {
  constexpr double kTeraPerKilobit = 1e-9 / 8;
  constexpr double kPerClock = 2;
  if (platform != "nvidia") return std::nullopt;
  int khz = 0;
  int bits = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceGetAttribute(&khz, hipDeviceAttributeMemoryClockRate, device));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceGetAttribute(&bits, hipDeviceAttributeMemoryBusWidth, device));
  if (khz == 0 || bits == 0) return std::nullopt;
  return kPerClock * khz * bits * kTeraPerKilobit;
}

}  // namespace

absl::StatusOr<GpuRates> CurrentGpuRates(absl::string_view platform) {
  constexpr double kMegaPerKilo = 1e-3;
  int device = 0;
  int khz = 0;
  hipDeviceProp_t properties = {};
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceGetAttribute(&khz, hipDeviceAttributeClockRate, device));
  OCTET_RETURN_IF_GPU_ERROR(hipGetDeviceProperties(&properties, device));
  OCTET_ASSIGN_OR_RETURN(const std::optional<double> memory, MemoryTerabytes(platform, device));
  return GpuRates{.compute_units = properties.multiProcessorCount,
                  .max_mhz = khz * kMegaPerKilo,
                  .flop_per_cycle = DenseFlopPerCycle(platform, properties.major, properties.minor),
                  .memory_tbps = memory};
}

double DenseFlopPerCycle(absl::string_view platform, int major, int minor) {
  for (const MatrixRate& rate : kMatrixRates) {
    if (rate.platform == platform && rate.major == major && rate.minor == minor) {
      return rate.flop_per_cycle;
    }
  }
  return 0;
}

}  // namespace octet
