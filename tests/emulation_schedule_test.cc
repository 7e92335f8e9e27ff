// Seeded schedules of the emulated GPUs.
#include <chrono>

#include "tests/emulation_fixture.h"

namespace octet {
namespace {

using ::testing::Not;

class EmulationScheduleTest : public EmulationTest {
 protected:
  void UseSeed(uint64_t seed, int workers = 1) {
    emulation::Config config = initial_config();
    config.seed = seed;
    config.workers = workers;
    Reconfigure(config);
  }

  std::vector<uint32_t> Order(uint64_t seed) {
    constexpr int kBlocks = 3;
    constexpr int kThreads = 70;
    UseSeed(seed);
    auto* words = Allocate(1 + 4 * kBlocks * kThreads);
    EXPECT_HIP_OK(
        LaunchTickets(words, words + 1, {.blocks = kBlocks, .threads = kThreads}, nullptr));
    return Read(words + 1, 4 * kBlocks * kThreads);
  }

  // How often the consumer has seen a value that was not meant for it.
  uint32_t Pass(uint64_t seed, bool wait_for_consumer) {
    UseSeed(seed);
    EnablePeerAccess();
    PassParams params = {};
    params.rounds = 8;
    params.wait_for_consumer = wait_for_consumer;
    params.consumed = Allocate(1, 0);
    params.slot = Allocate(1, 1);
    params.produced = Allocate(1, 1);
    params.errors = Allocate(1, 1);
    EXPECT_HIP_OK(LaunchConsumer(params, nullptr));
    EXPECT_HIP_OK(hipSetDevice(0));
    EXPECT_HIP_OK(LaunchProducer(params, nullptr));
    EXPECT_HIP_OK(hipDeviceSynchronize());
    EXPECT_HIP_OK(hipSetDevice(1));
    EXPECT_HIP_OK(hipDeviceSynchronize());
    return Read(params.errors, 1)[0];
  }
};

TEST_F(EmulationScheduleTest, ASeedMeansTheSameRun) {
  const std::vector<uint32_t> first = Order(7);
  EXPECT_EQ(first, Order(7));
  EXPECT_THAT(Order(8), Not(first));
}

TEST_F(EmulationScheduleTest, SlowConsumersAreFound) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_EQ(Pass(seed, /*wait_for_consumer=*/true), 0U);
    const uint32_t errors = Pass(seed, /*wait_for_consumer=*/false);
    EXPECT_EQ(errors, Pass(seed, /*wait_for_consumer=*/false));
    if (errors > 0) ++found;
  }
  EXPECT_GE(found, 10);
}

// Ten seconds of deadline pass in much less, as nobody can do anything but wait.
TEST_F(EmulationScheduleTest, TimeIsVirtual) {
  for (const int workers : {1, 2}) {
    UseSeed(3, workers);
    auto* flag = Allocate(1);
    auto* waited = Allocate<int64_t>(1);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_HIP_OK(LaunchWaitWithDeadline(flag, 10'000'000'000, waited, 256, nullptr));
    ASSERT_HIP_OK(hipDeviceSynchronize());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
    EXPECT_GT(Read(waited, 1)[0], 10'000'000'000);
  }
}

}  // namespace
}  // namespace octet
