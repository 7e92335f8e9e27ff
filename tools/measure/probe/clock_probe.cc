#include "tools/measure/probe/clock_probe.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tools/support/statistics.h"

namespace octet {

absl::StatusOr<ClockProbe> ClockProbe::Create(const GpuRates& rates) {
  constexpr int kBlocksPerUnit = 2;
  ClockProbe probe;
  probe.max_mhz_ = rates.max_mhz;
  probe.blocks_ = kBlocksPerUnit * rates.compute_units;
  OCTET_ASSIGN_OR_RETURN(
      probe.samples_,
      DeviceMemory::Allocate(2 * static_cast<size_t>(probe.blocks_) * sizeof(ClockSample)));
  return probe;
}

absl::Status ClockProbe::Sample(int which, hipStream_t stream) const {
  ClockSample* const samples = samples_.as<ClockSample>() + static_cast<ptrdiff_t>(which) * blocks_;
  return OCTET_GPU(LaunchSampleClocks(samples, blocks_, stream));
}

absl::StatusOr<std::optional<double>> ClockProbe::Megahertz() const {
  constexpr double kPerMicro = 1e-6;
  const auto blocks = static_cast<size_t>(blocks_);
  std::vector<ClockSample> samples(2 * blocks);
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(samples.data(), samples_.as<void>(), samples_.bytes(), hipMemcpyDeviceToHost));
  const absl::Span<const ClockSample> both = samples;
  return MegahertzOf(both.first(blocks), both.last(blocks),
                     static_cast<double>(ClockSampleHz()) * kPerMicro, max_mhz_);
}

std::optional<double> MegahertzOf(absl::Span<const ClockSample> before,
                                  absl::Span<const ClockSample> after, double ticks_per_us,
                                  double max_mhz) {
  constexpr double kLeastShare = 0.1;
  constexpr double kMostShare = 1.05;
  constexpr double kTolerance = 0.05;
  std::map<uint64_t, ClockSample> first;
  for (const ClockSample& sample : before) first.emplace(sample.unit, sample);
  std::map<uint64_t, double> found;  // by unit
  for (const ClockSample& sample : after) {
    const auto same = first.find(sample.unit);
    if (same == first.end() || sample.ticks <= same->second.ticks) continue;
    const auto ticks = static_cast<double>(sample.ticks - same->second.ticks);
    const auto cycles = static_cast<double>(sample.cycles - same->second.cycles);
    found.emplace(sample.unit, cycles / ticks * ticks_per_us);
  }
  std::vector<double> mhz;
  mhz.reserve(found.size());
  for (const auto& [unit, value] : found) mhz.push_back(value);
  const double median = Summarize(mhz).median;  // 0 for none
  if (median < kLeastShare * max_mhz || median > kMostShare * max_mhz || median == 0) return {};
  const auto agree = std::count_if(mhz.begin(), mhz.end(), [median](double value) {
    return std::abs(value - median) <= kTolerance * median;
  });
  if (2 * static_cast<size_t>(agree) < mhz.size()) return {};
  return median;
}

}  // namespace octet
