// The counters of loads alone: calls that follow one another, that count twice, and that are left
// out, against sums by the host.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/loads/load_counters_kernels.h"

namespace octet {
namespace {

constexpr int kExperts = 70;  // more than the threads of the block

template <typename T>
DeviceMemory Zeros(size_t n) {
  absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(n * sizeof(T));
  EXPECT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(hipMemset(memory->as<void>(), 0, n * sizeof(T)), hipSuccess);
  return *std::move(memory);
}

// The calls that have counted, by epoch, on the host.
using Calls = std::map<uint64_t, std::vector<int32_t>>;

uint64_t Sum(const Calls& calls, size_t expert, uint64_t first_epoch) {
  uint64_t rows = 0;
  for (auto call = calls.lower_bound(first_epoch); call != calls.end(); ++call) {
    rows += static_cast<uint64_t>(call->second[expert]);
  }
  return rows;
}

class LoadCountersTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Window, LoadCountersTest, testing::Values(1, 3, 4, 7));

TEST_P(LoadCountersTest, CountCallsThatRepeatAndThatAreLeftOut) {
  int devices = 0;
  if (hipGetDeviceCount(&devices) != hipSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  const int window = GetParam();
  const auto slots = std::bit_ceil(static_cast<size_t>(window));
  const DeviceMemory totals = Zeros<uint64_t>(kExperts);
  const DeviceMemory windows = Zeros<LoadCounters::Window>(kExperts);
  const DeviceMemory of_calls = Zeros<uint32_t>(slots * kExperts);
  const DeviceMemory published = Zeros<uint64_t>(2 * kExperts);
  const DeviceMemory rows = Zeros<int32_t>(kExperts);
  CountCallParams params = {.counters = {.totals = totals.as<uint64_t>(),
                                         .windows = windows.as<LoadCounters::Window>(),
                                         .calls = of_calls.as<uint32_t>(),
                                         .published = published.as<uint64_t>(),
                                         .num_experts = kExperts,
                                         .window = window,
                                         .slots = static_cast<int>(slots)},
                            .epoch = 0,
                            .rows = rows.as<int32_t>()};
  constexpr uint64_t kSeed = 20261127;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  Calls calls;
  for (int i = 0; i < 200; ++i) {
    // Mostly the next call; now and then the same once more, or one that is some calls later.
    const uint64_t kind = random() % 8;
    if (params.epoch == 0 || kind < 6) {
      ++params.epoch;
    } else if (kind == 7) {
      params.epoch += 2 + random() % 12;
    }
    std::vector<int32_t>& call = calls[params.epoch];
    call.resize(kExperts);
    for (int32_t& n : call) n = static_cast<int32_t>(random() % 100);
    ASSERT_EQ(hipMemcpy(rows.as<void>(), call.data(), call.size() * sizeof(int32_t),
                        hipMemcpyHostToDevice),
              hipSuccess);
    ASSERT_EQ(LaunchCountCall(params, nullptr), hipSuccess);
    std::vector<uint64_t> counted(2 * kExperts);
    ASSERT_EQ(hipMemcpy(counted.data(), published.as<void>(), counted.size() * sizeof(uint64_t),
                        hipMemcpyDeviceToHost),
              hipSuccess);
    const uint64_t first = params.epoch < static_cast<uint64_t>(window)
                               ? 0
                               : params.epoch + 1 - static_cast<uint64_t>(window);
    for (size_t e = 0; e < kExperts; ++e) {
      ASSERT_EQ(counted[e], Sum(calls, e, 0)) << "expert " << e << ", epoch " << params.epoch;
      ASSERT_EQ(counted[kExperts + e], Sum(calls, e, first))
          << "expert " << e << ", epoch " << params.epoch;
    }
  }
}

}  // namespace
}  // namespace octet
