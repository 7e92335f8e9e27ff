// The clock that compute units had while a stream did some work.
#ifndef OCTET_TOOLS_MEASURE_PROBE_CLOCK_PROBE_H_
#define OCTET_TOOLS_MEASURE_PROBE_CLOCK_PROBE_H_

#include <hip/hip_runtime.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/memory/device_memory.h"
#include "tools/measure/probe/clock_kernel.h"
#include "tools/measure/probe/gpu_rates.h"

namespace octet {

// Kernels before and after the work read each compute unit's counter of cycles and the time.
// Belongs to the GPU that was current at Create.
class ClockProbe {
 public:
  static absl::StatusOr<ClockProbe> Create(const GpuRates& rates);

  // Enqueue a kernel before and after the work.
  absl::Status Begin(hipStream_t stream) const { return Sample(0, stream); }
  absl::Status End(hipStream_t stream) const { return Sample(1, stream); }

  // Returns the mean clock in MHz between the two, both of which must be done; nullopt if the GPU
  // has no such counter (emulated ones), or one whose values cannot be right.
  absl::StatusOr<std::optional<double>> Megahertz() const;

 private:
  absl::Status Sample(int which, hipStream_t stream) const;

  double max_mhz_ = 0;
  int blocks_ = 0;
  DeviceMemory samples_;  // [2][blocks_]
};

// Returns the median, over compute units that have samples of both kinds, of cycles per
// microsecond. `ticks_per_us`: of ClockSample::ticks. nullopt if there are none, if fewer than half
// of them are within 5% of the median, or if it is not from max_mhz / 10 to 1.05 · max_mhz.
std::optional<double> MegahertzOf(absl::Span<const ClockSample> before,
                                  absl::Span<const ClockSample> after, double ticks_per_us,
                                  double max_mhz);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_CLOCK_PROBE_H_
