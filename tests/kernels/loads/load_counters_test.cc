// The counters of loads alone: calls that follow one another and that are left out, and reading
// beside calls, against sums by the host.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ep/base/load_reading.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/loads/load_counters_kernels.h"

namespace octet {
namespace {

constexpr int kCountedExperts = 70;  // more than the threads of the block

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

class LoadCountersTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (hipGetDeviceCount(&devices) != hipSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    const size_t slots = std::bit_ceil(static_cast<size_t>(GetParam()) + 1);
    totals_ = Zeros<uint64_t>(kCountedExperts);
    num_entries_ = slots * kCountedExperts;
    of_calls_ = Zeros<uint64_t>(num_entries_);
    rows_ = Zeros<int32_t>(kCountedExperts);
    ASSERT_EQ(hipStreamCreateWithFlags(&reader_, hipStreamNonBlocking), hipSuccess);
    void* pinned = nullptr;
    ASSERT_EQ(hipHostMalloc(&pinned, 2 * kCountedExperts * sizeof(uint64_t), 0), hipSuccess);
    read_ = static_cast<uint64_t*>(pinned);
    params_ = {.counters = {.totals = totals_.as<uint64_t>(),
                            .calls = of_calls_.as<uint64_t>(),
                            .locals = nullptr,
                            .num_counters = kCountedExperts,
                            .window = GetParam(),
                            .slots = static_cast<int>(slots)},
               .epoch = 0,
               .rows = rows_.as<int32_t>()};
  }
  void TearDown() override {
    if (reader_ != nullptr) EXPECT_EQ(hipStreamDestroy(reader_), hipSuccess);
    if (read_ != nullptr) EXPECT_EQ(hipHostFree(read_), hipSuccess);
  }

  void SetRows(const std::vector<int32_t>& rows) {
    ASSERT_EQ(hipMemcpy(rows_.as<void>(), rows.data(), rows.size() * sizeof(int32_t),
                        hipMemcpyHostToDevice),
              hipSuccess);
  }
  void Read() {
    ASSERT_EQ(LaunchReadLoads({.counters = params_.counters, .read = read_}, reader_), hipSuccess);
    ASSERT_EQ(hipStreamSynchronize(reader_), hipSuccess);
  }
  uint64_t window() const { return static_cast<uint64_t>(GetParam()); }

  DeviceMemory totals_, of_calls_, rows_;
  size_t num_entries_ = 0;  // of of_calls_
  uint64_t* read_ = nullptr;
  hipStream_t reader_ = nullptr;
  CountCallParams params_ = {};
};

INSTANTIATE_TEST_SUITE_P(Window, LoadCountersTest, testing::Values(1, 3, 4, 7));

TEST_P(LoadCountersTest, CountCallsOfWhichSomeAreLeftOut) {
  // Across the end of the 32 bits of an entry's epoch, in which epoch 2^32 is taken for none.
  for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 32) - 50}) {
    params_.epoch = first;
    const uint64_t seed = 20261127 + first;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    ASSERT_EQ(hipMemset(totals_.as<void>(), 0, kCountedExperts * sizeof(uint64_t)), hipSuccess);
    ASSERT_EQ(hipMemset(of_calls_.as<void>(), 0, num_entries_ * sizeof(uint64_t)), hipSuccess);
    Calls calls;
    for (int i = 0; i < 100; ++i) {
      // Mostly the next call; now and then one that is some calls later.
      params_.epoch += random() % 8 < 7 ? 1 : 2 + random() % 12;
      if (static_cast<uint32_t>(params_.epoch) == 0) ++params_.epoch;
      std::vector<int32_t>& call = calls[params_.epoch];
      call.resize(kCountedExperts);
      for (int32_t& n : call) n = static_cast<int32_t>(random() % 100);
      SetRows(call);
      ASSERT_EQ(LaunchCountCall(params_, nullptr), hipSuccess);
      ASSERT_EQ(hipStreamSynchronize(nullptr), hipSuccess);
      Read();
      const uint64_t begin = params_.epoch < window() ? 0 : params_.epoch + 1 - window();
      for (size_t e = 0; e < kCountedExperts; ++e) {
        ASSERT_EQ(read_[e], Sum(calls, e, 0)) << "expert " << e << ", epoch " << params_.epoch;
        ASSERT_EQ(read_[kCountedExperts + e], Sum(calls, e, begin))
            << "expert " << e << ", epoch " << params_.epoch;
      }
    }
  }
}

TEST_P(LoadCountersTest, CountByTheTableOfExperts) {
  const DeviceMemory locals = Zeros<int32_t>(kCountedExperts);
  std::vector<int32_t> of_experts(kCountedExperts, -1);
  for (size_t e = 0; e < kCountedExperts; e += 3) {
    of_experts[e] = static_cast<int32_t>(kCountedExperts - 1 - e);
  }
  ASSERT_EQ(hipMemcpy(locals.as<void>(), of_experts.data(), kCountedExperts * sizeof(int32_t),
                      hipMemcpyHostToDevice),
            hipSuccess);
  params_.counters.locals = locals.as<int32_t>();
  std::vector<int32_t> rows(kCountedExperts);
  std::iota(rows.begin(), rows.end(), 5);
  SetRows(rows);
  params_.epoch = 1;
  ASSERT_EQ(LaunchCountCall(params_, nullptr), hipSuccess);
  ASSERT_EQ(hipStreamSynchronize(nullptr), hipSuccess);
  Read();
  for (size_t e = 0; e < kCountedExperts; ++e) {
    const uint64_t want = of_experts[e] < 0 ? 0 : static_cast<uint64_t>(of_experts[e]) + 5;
    EXPECT_EQ(read_[e], want);
    EXPECT_EQ(read_[kCountedExperts + e], want);
  }
}

// A window that moves while it is read is one of a moment: each call brings as many rows.
TEST_P(LoadCountersTest, AreReadBesideCalls) {
  SetRows(std::vector<int32_t>(kCountedExperts, 11));
  hipStream_t calls = nullptr;
  ASSERT_EQ(hipStreamCreateWithFlags(&calls, hipStreamNonBlocking), hipSuccess);
  ASSERT_EQ(hipStreamSynchronize(nullptr), hipSuccess);
  for (uint64_t i = 0; i < window(); ++i) {
    ++params_.epoch;
    ASSERT_EQ(LaunchCountCall(params_, calls), hipSuccess);
  }
  ASSERT_EQ(hipStreamSynchronize(calls), hipSuccess);
  uint64_t last = 0;
  for (int i = 0; i < 30; ++i) {
    for (int n = 0; n < 5; ++n) {
      ++params_.epoch;
      ASSERT_EQ(LaunchCountCall(params_, calls), hipSuccess);
    }
    Read();
    for (size_t e = 0; e < kCountedExperts; ++e) {
      ASSERT_EQ(read_[e] % 11, 0U);
      ASSERT_LE(read_[e], 11 * params_.epoch);
      ASSERT_EQ(read_[kCountedExperts + e], 11 * window());
    }
    ASSERT_GE(read_[0], last);
    last = read_[0];
  }
  ASSERT_EQ(hipStreamSynchronize(calls), hipSuccess);
  ASSERT_EQ(hipStreamDestroy(calls), hipSuccess);
}

}  // namespace
}  // namespace octet
