// The deadline of warps of a product that wait for one another, on NVIDIA GPUs. A program of its
// own: after the last test its GPU takes no more calls.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/topology.h"
#include "runtime/device/clock.h"
#include "tests/platform/gemm_waits_kernels.h"

namespace octet {
namespace {

constexpr uint64_t kMillisecondsPerSecond = 1000;

class GemmWaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto topology = DiscoverTopology(); !topology.ok()) {
      GTEST_SKIP() << topology.status();
    }
    void* memory = nullptr;
    ASSERT_EQ(hipHostMalloc(&memory, 2 * sizeof(uint64_t), hipHostMallocMapped), hipSuccess);
    words_ = static_cast<uint64_t*>(memory);
    words_[0] = words_[1] = 0;
    ms_ = device::ClockHz() / kMillisecondsPerSecond;
  }
  // The memory is left to the end of the process: the last test leaves no GPU that would free it.

  hipError_t Wait(uint64_t deadline_ms, uint64_t late_ms) {
    const hipError_t error = LaunchGemmWait({.deadline = deadline_ms * ms_,
                                             .late = late_ms * ms_,
                                             .waited = words_,
                                             .gave_up = words_ + 1},
                                            nullptr);
    return error != hipSuccess ? error : hipDeviceSynchronize();
  }
  uint64_t waited_ms() const { return words_[0] / ms_; }
  uint64_t gave_up_ms() const { return words_[1] / ms_; }

  uint64_t* words_ = nullptr;
  uint64_t ms_ = 0;
};

TEST_F(GemmWaitsTest, AWarpThatIsLateIsWaitedFor) {
  EXPECT_EQ(Wait(10'000, 300), hipSuccess);
  EXPECT_GE(waited_ms(), 299U);
  EXPECT_LT(waited_ms(), 5'000U);
  EXPECT_EQ(gave_up_ms(), 0U);
}

TEST_F(GemmWaitsTest, AWarpThatNeverArrivesEndsTheKernelWithAnError) {
  EXPECT_NE(Wait(200, 0), hipSuccess);
  EXPECT_EQ(waited_ms(), 0U);
  EXPECT_GE(gave_up_ms(), 200U);
  EXPECT_LT(gave_up_ms(), 5'000U);
  RecordProperty("gave_up_ms", static_cast<int>(gave_up_ms()));
}

}  // namespace
}  // namespace octet
