// The clock of compute units, and what they can do at most.
#include "tools/measure/probe/clock_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/topology.h"
#include "runtime/memory/device_memory.h"
#include "tools/measure/probe/gpu_rates.h"

namespace octet {
namespace {

constexpr double kTicksPerMicro = 1000;
constexpr double kMaxMhz = 2000;

// One sample of each unit: a millisecond after another at these clocks.
struct Samples {
  std::vector<ClockSample> before;
  std::vector<ClockSample> after;
};
Samples At(const std::vector<double>& clocks_mhz) {
  constexpr uint64_t kMilli = 1'000'000;
  Samples samples;
  for (size_t i = 0; i < clocks_mhz.size(); ++i) {
    const auto unit = static_cast<uint32_t>(7 * i);
    const uint64_t ticks = 5000 + i;
    const uint64_t cycles = ~uint64_t{0} - 10 * i;  // wraps around
    samples.before.push_back({ticks, cycles, unit});
    samples.after.push_back(
        {ticks + kMilli, cycles + static_cast<uint64_t>(clocks_mhz[i] * 1000), unit});
  }
  return samples;
}
std::optional<double> Megahertz(const Samples& samples) {
  return MegahertzOf(samples.before, samples.after, kTicksPerMicro, kMaxMhz);
}

TEST(ClockProbeTest, MedianOfTheUnits) {
  EXPECT_DOUBLE_EQ(Megahertz(At({1500})).value_or(0), 1500);
  EXPECT_DOUBLE_EQ(Megahertz(At({1490, 1500, 1510, 1505, 100})).value_or(0), 1500);
}

TEST(ClockProbeTest, UnitsAreComparedWithThemselves) {
  Samples samples = At({1000, 1010, 1020});
  std::swap(samples.after[0], samples.after[2]);
  samples.after.push_back({1, 1, 99});  // never seen before
  EXPECT_DOUBLE_EQ(Megahertz(samples).value_or(0), 1010);
}

TEST(ClockProbeTest, SaysNothingWhereItCannotBeRight) {
  EXPECT_EQ(Megahertz({}), std::nullopt);
  EXPECT_EQ(Megahertz(At({0, 0, 0})), std::nullopt) << "no counter";
  EXPECT_EQ(Megahertz(At({100, 100, 100})), std::nullopt) << "a counter of something else";
  EXPECT_EQ(Megahertz(At({2200, 2200, 2200})), std::nullopt) << "faster than the GPU can be";
  EXPECT_EQ(Megahertz(At({500, 800, 1200, 1500, 1900})), std::nullopt) << "units disagree";
  Samples apart = At({1500, 1500});
  for (ClockSample& sample : apart.after) sample.unit += 1;
  EXPECT_EQ(Megahertz(apart), std::nullopt) << "no unit has both";
  Samples backwards = At({1500});
  std::swap(backwards.before, backwards.after);
  EXPECT_EQ(Megahertz(backwards), std::nullopt);
}

TEST(ClockProbeTest, MeasuresTheCurrentGpu) {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  if (!topology.ok()) GTEST_SKIP() << topology.status();
  const absl::StatusOr<GpuRates> rates = CurrentGpuRates(topology->platform);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_GT(rates->compute_units, 0);
  const absl::StatusOr<ClockProbe> probe = ClockProbe::Create(*rates);
  ASSERT_TRUE(probe.ok()) << probe.status();
  constexpr size_t kBytes = size_t{64} << 20;
  const absl::StatusOr<DeviceMemory> work = DeviceMemory::Allocate(kBytes);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_TRUE(probe->Begin(nullptr).ok());
  ASSERT_EQ(hipMemsetAsync(work->as<void>(), 0, kBytes, nullptr), hipSuccess);
  ASSERT_TRUE(probe->End(nullptr).ok());
  ASSERT_EQ(hipDeviceSynchronize(), hipSuccess);
  const absl::StatusOr<std::optional<double>> mhz = probe->Megahertz();
  ASSERT_TRUE(mhz.ok()) << mhz.status();
  EXPECT_EQ(mhz->has_value(), !topology->emulated());
}

TEST(GpuRatesTest, PeaksAreTheVendors) {
  const GpuRates h200 = {132, 1980, DenseFlopPerCycle("nvidia", 9, 0)};
  EXPECT_NEAR(h200.PeakTeraflops(2).value_or(0), 1070.5, 0.1);
  EXPECT_NEAR(h200.PeakTeraflops(1).value_or(0), 2141.0, 0.1);
  const GpuRates mi300x = {304, 2100, DenseFlopPerCycle("amd", 9, 4)};
  EXPECT_NEAR(mi300x.PeakTeraflops(2).value_or(0), 1307.4, 0.1);
  const GpuRates mi250x = {220, 1700, DenseFlopPerCycle("amd", 9, 0)};
  EXPECT_NEAR(mi250x.PeakTeraflops(2).value_or(0), 383.0, 0.1);
  const GpuRates mi355x = {256, 2400, DenseFlopPerCycle("amd", 9, 5)};
  EXPECT_NEAR(mi355x.PeakTeraflops(2).value_or(0), 2516.6, 0.1);
}

TEST(GpuRatesTest, NoPeakOfWhatIsUnknown) {
  EXPECT_EQ(DenseFlopPerCycle("nvidia", 8, 0), 0);
  EXPECT_EQ(DenseFlopPerCycle("emulation", 9, 0), 0);
  EXPECT_EQ(GpuRates({132, 1980, 0}).PeakTeraflops(2), std::nullopt);
}

}  // namespace
}  // namespace octet
