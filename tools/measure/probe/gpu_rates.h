// The rates that the compute units of a GPU reach at most.
#ifndef OCTET_TOOLS_MEASURE_PROBE_GPU_RATES_H_
#define OCTET_TOOLS_MEASURE_PROBE_GPU_RATES_H_

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octet {

struct GpuRates {
  int compute_units = 0;
  double max_mhz = 0;  // the highest clock that the driver names
  // Dense matrix products of 16-bit elements, of one compute unit; 0: unknown, or emulated.
  double flop_per_cycle = 0;
  // From the clock and the width that the driver names; AMD: unknown.
  std::optional<double> memory_tbps = std::nullopt;

  // Returns the dense peak for elements of 1 or 2 bytes, which needs all units at the highest
  // clock.
  std::optional<double> PeakTeraflops(size_t element_bytes) const;
};

// Returns the rates of the current GPU. `platform`: Topology::platform.
absl::StatusOr<GpuRates> CurrentGpuRates(absl::string_view platform);

// Returns GpuRates::flop_per_cycle of an architecture: on NVIDIA the compute capability, on AMD the
// first two parts of gfx9.4.2.
double DenseFlopPerCycle(absl::string_view platform, int major, int minor);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_GPU_RATES_H_
