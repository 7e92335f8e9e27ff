// Waves, blocks and grids of the emulated GPUs, and their shared memory.
#include <algorithm>

#include "memory/poison.h"
#include "tests/platform/emulation/emulation_fixture.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class EmulationCollectivesTest : public EmulationTest {
 protected:
  int wave() const { return initial_config().wave_size; }
};

TEST_F(EmulationCollectivesTest, WaveSizeIsWhatTheDeviceSays) {
  hipDeviceProp_t properties;
  ASSERT_HIP_OK(hipGetDeviceProperties(&properties, 0));
  EXPECT_EQ(properties.warpSize, wave());
  EXPECT_STREQ(properties.name, "Octet emulated GPU");
}

TEST_F(EmulationCollectivesTest, WavesExchangeValues) {
  constexpr int kThreads = 200;  // the last wave is not full
  auto* results = Allocate<WaveResult>(2 * kThreads);
  ASSERT_HIP_OK(
      LaunchWaveOps(results, /*odd_leave=*/false, {.blocks = 2, .threads = kThreads}, nullptr));
  const auto read = Read(results, 2 * kThreads);
  for (int i = 0; i < 2 * kThreads; ++i) {
    SCOPED_TRACE(i);
    const int block = i / kThreads;
    const int in_block = i % kThreads;
    const int lane = in_block % wave();
    const int first = i - lane;
    const int lanes = std::min(wave(), (block + 1) * kThreads - first);
    const WaveResult& r = read[static_cast<size_t>(i)];
    EXPECT_EQ(r.from_first, static_cast<uint32_t>(first));
    EXPECT_EQ(r.xor_1, static_cast<uint32_t>(first + (lane ^ 1)));
    EXPECT_EQ(r.up_1, static_cast<uint32_t>(lane == 0 ? i : i - 1));
    const int next = (lane + 1) % wave();
    EXPECT_EQ(r.from_next, static_cast<uint64_t>(next < lanes ? first + next : i) << 33);
    uint64_t odd = 0;
    for (int l = 0; l < lanes; ++l) odd |= static_cast<uint64_t>((first + l) % 2) << l;
    EXPECT_EQ(r.odd, odd);
  }
}

TEST_F(EmulationCollectivesTest, LanesThatLeftAreNotWaitedFor) {
  auto* results = Allocate<WaveResult>(64);
  ASSERT_HIP_OK(LaunchWaveOps(results, /*odd_leave=*/true, {.blocks = 1, .threads = 64}, nullptr));
  ASSERT_HIP_OK(hipDeviceSynchronize());
  for (const WaveResult& r : Read(results, 64)) EXPECT_EQ(r.odd, 0U);
}

TEST_F(EmulationCollectivesTest, BlocksShareStaticAndDynamicMemory) {
  constexpr int kBlocks = 50;
  constexpr int kThreads = 192;
  auto* sums = Allocate(kBlocks);
  ASSERT_HIP_OK(LaunchBlockSum(
      sums, 7, {.blocks = kBlocks, .threads = kThreads, .shared_bytes = kThreads * 4}, nullptr));
  const auto read = Read(sums, kBlocks);
  for (uint32_t block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(read[block], kThreads * (kThreads - 1) / 2 + block * kThreads);
  }
}

TEST_F(EmulationCollectivesTest, FreshSharedMemoryIsNotZero) {
  auto* values = Allocate(8);
  ASSERT_HIP_OK(LaunchReadFreshShared(values, {.blocks = 2, .threads = 32}, nullptr));
  EXPECT_THAT(Read(values, 8), Each(emulation::kPoisonWord));
}

TEST_F(EmulationCollectivesTest, MoreBlocksThanFitRunOneAfterAnother) {
  constexpr int kBlocks = 1000;
  auto* sums = Allocate(kBlocks);
  ASSERT_HIP_OK(
      LaunchBlockSum(sums, 1, {.blocks = kBlocks, .threads = 64, .shared_bytes = 40'000}, nullptr));
  const auto read = Read(sums, kBlocks);
  for (uint32_t block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(read[block], 64 * 63 / 2 + block * 64);
  }
}

// Also to blocks that do not run from the beginning.
TEST_F(EmulationCollectivesTest, WavesThatPollWithBallotsGiveWay) {
  constexpr int kThreads = 128;
  auto* words = Allocate(2 * kThreads);
  for (const int blocks : {2, 5}) {
    SCOPED_TRACE(blocks);
    ASSERT_HIP_OK(hipMemset(words, 0, 2 * kThreads * sizeof(uint32_t)));
    ASSERT_HIP_OK(
        LaunchPollTogether(words, words, {.blocks = blocks, .threads = kThreads}, nullptr));
    EXPECT_THAT(Read(words, 2 * kThreads), Each(1U));
  }
}

TEST_F(EmulationCollectivesTest, WavesThatPollWithBallotsForEverAreTold) {
  emulation::Config config = initial_config();
  config.stuck_timeout_ms = 300;
  config.seed = 0;
  Reconfigure(config);
  constexpr int kThreads = 64;
  auto* words = Allocate(4 * kThreads);
  ASSERT_HIP_OK(
      LaunchPollTogether(words, words + 2 * kThreads, {.blocks = 2, .threads = kThreads}, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchTimeOut);
  EXPECT_THAT(emulation::LastReport(),
              AllOf(HasSubstr("Kernels are stuck"), HasSubstr("PollTogether")));
}

TEST_F(EmulationCollectivesTest, GridsMeet) {
  auto* words = Allocate(2);
  ASSERT_HIP_OK(LaunchGridRounds(words, words + 1, 20, {.blocks = 6, .threads = 96},
                                 /*cooperative=*/true, nullptr));
  const auto read = Read(words, 2);
  EXPECT_EQ(read[0], 20U * 6 * 96);
  EXPECT_EQ(read[1], 0U);
}

TEST_F(EmulationCollectivesTest, CooperativeGridsMustFit) {
  auto* words = Allocate(2);
  hipFuncAttributes attributes;
  ASSERT_HIP_OK(
      hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&LaunchGridRounds)));
  int per_unit = 0;
  ASSERT_HIP_OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(
      &per_unit, reinterpret_cast<const void*>(&LaunchGridRounds), 256, 0));
  hipDeviceProp_t properties;
  ASSERT_HIP_OK(hipGetDeviceProperties(&properties, 0));
  EXPECT_EQ(per_unit, properties.maxThreadsPerMultiProcessor / 256);
  const int fits = per_unit * properties.multiProcessorCount;
  EXPECT_EQ(
      LaunchGridRounds(words, words + 1, 1, {.blocks = fits + 1, .threads = 256}, true, nullptr),
      hipErrorCooperativeLaunchTooLarge);
  EXPECT_EQ(hipGetLastError(), hipErrorCooperativeLaunchTooLarge);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
#if !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)
  ASSERT_HIP_OK(
      LaunchGridRounds(words, words + 1, 1, {.blocks = fits, .threads = 256}, true, nullptr));
  EXPECT_EQ(Read(words, 2)[1], 0U);
#endif
}

TEST_F(EmulationCollectivesTest, ImpossibleShapesAreRefused) {
  auto* words = Allocate(2);
  EXPECT_EQ(LaunchBlockSum(words, 1, {.blocks = 1, .threads = 1025}, nullptr),
            hipErrorInvalidConfiguration);
  EXPECT_EQ(LaunchBlockSum(words, 1, {.blocks = 0, .threads = 32}, nullptr),
            hipErrorInvalidConfiguration);
  EXPECT_EQ(LaunchBlockSum(words, 1, {.blocks = 1, .threads = 32, .shared_bytes = 65'537}, nullptr),
            hipErrorInvalidValue);
}

// As on NVIDIA GPUs: for each kernel and device, and the last one to set it is right.
TEST_F(EmulationCollectivesTest, DynamicSharedMemoryHasALimit) {
  Reconfigure(initial_config());  // nothing has been set
  auto* words = Allocate(4);
  constexpr size_t kDefault = 48 << 10;
  constexpr size_t kMost = 60 << 10;
  const auto launch = [&](size_t bytes) {
    return LaunchBlockSum(words, 1, {.blocks = 1, .threads = 32, .shared_bytes = bytes}, nullptr);
  };
  const auto expect = [](size_t limit) {
    int found = 0;
    int blocks = -1;
    ASSERT_HIP_OK(AskAboutBlockSum(limit, &found, &blocks));
    EXPECT_EQ(static_cast<size_t>(found), limit);
    EXPECT_EQ(blocks, 1);
    ASSERT_HIP_OK(AskAboutBlockSum(limit + 4, &found, &blocks));
    EXPECT_EQ(blocks, 0);
  };
  expect(kDefault);
  EXPECT_HIP_OK(launch(kDefault));
  EXPECT_EQ(launch(kDefault + 4), hipErrorInvalidValue);
  ASSERT_HIP_OK(LimitBlockSum(kMost));
  expect(kMost);
  EXPECT_HIP_OK(launch(kMost));
  EXPECT_EQ(launch(kMost + 4), hipErrorInvalidValue);
  EXPECT_EQ(
      LaunchGridRounds(words, words + 1, 1,
                       {.blocks = 1, .threads = 32, .shared_bytes = kDefault + 4}, true, nullptr),
      hipErrorCooperativeLaunchTooLarge);
  if (initial_config().devices > 1) {
    ASSERT_HIP_OK(hipSetDevice(1));
    EXPECT_EQ(launch(kDefault + 4), hipErrorInvalidValue);
    ASSERT_HIP_OK(hipSetDevice(0));
  }
  ASSERT_HIP_OK(LimitBlockSum(1024));
  EXPECT_HIP_OK(launch(1024));
  EXPECT_EQ(launch(1028), hipErrorInvalidValue);
  EXPECT_EQ(LimitBlockSum((64 << 10) + 4), hipErrorInvalidValue);
  EXPECT_HIP_OK(hipDeviceSynchronize());
}

TEST_F(EmulationCollectivesTest, GridSyncNeedsACooperativeLaunch) {
  auto* words = Allocate(2);
  ASSERT_HIP_OK(LaunchGridRounds(words, words + 1, 1, {.blocks = 2, .threads = 32},
                                 /*cooperative=*/false, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
  EXPECT_THAT(emulation::LastReport(), HasSubstr("the launch was not cooperative"));
}

}  // namespace
}  // namespace octet
