// The primitives that kernels are made of, one by one, on one GPU.
#include "tests/runtime/primitives_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/topology.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"

namespace octet {
namespace {

class PrimitivesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    if (!topology.ok()) GTEST_SKIP() << topology.status();
    wave_size_ = topology->gpus[0].wave_size;
  }

  // Memory of the GPU with these values.
  template <typename T>
  static DeviceMemory Upload(const std::vector<T>& values) {
    absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(values.size() * sizeof(T));
    EXPECT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(hipMemcpy(memory->as<void>(), values.data(), memory->bytes(), hipMemcpyHostToDevice),
              hipSuccess);
    return *std::move(memory);
  }

  template <typename T>
  static std::vector<T> Download(const DeviceMemory& memory) {
    std::vector<T> values(memory.bytes() / sizeof(T));
    EXPECT_EQ(hipMemcpy(values.data(), memory.as<void>(), memory.bytes(), hipMemcpyDeviceToHost),
              hipSuccess);
    return values;
  }

  static device::FailurePort PortWith(const DeviceMemory& claimed) {
    device::FailurePort port = {};
    port.claimed = claimed.as<uint32_t>();
    return port;
  }

  int wave_size_ = 0;
};

// All blocks of a call get one epoch, and the next call, of whatever size, the next one.
TEST_F(PrimitivesTest, BeginCallCountsCalls) {
  const DeviceMemory call = Upload(std::vector<device::CallEpoch>{{1, 0}});
  const DeviceMemory claimed = Upload(std::vector<uint32_t>(device::kRecordsOfARank));
  const device::FailurePort port = PortWith(claimed);
  uint64_t epoch = 1;
  for (const int blocks : {1, 2, 5, 3, 1, 8, 8, 2}) {
    const DeviceMemory epochs = Upload(std::vector<uint64_t>(static_cast<size_t>(blocks)));
    const LaunchShape shape = {.blocks = blocks, .threads = 2 * wave_size_};
    auto* state_of_call = call.as<device::CallEpoch>();
    ASSERT_EQ(LaunchBeginCall(port, state_of_call, epochs.as<uint64_t>(), shape, nullptr),
              hipSuccess);
    for (const uint64_t seen : Download<uint64_t>(epochs)) EXPECT_EQ(seen, epoch);
    ASSERT_EQ(LaunchBegunCall(port, state_of_call, epochs.as<uint64_t>(), shape, nullptr),
              hipSuccess);
    for (const uint64_t seen : Download<uint64_t>(epochs)) EXPECT_EQ(seen, epoch);
    ++epoch;
    const std::vector<device::CallEpoch> state = Download<device::CallEpoch>(call);
    EXPECT_EQ(state[0].epoch, epoch);
    EXPECT_EQ(state[0].blocks_started, 0U);
  }
}

// Whatever has failed on the rank, no block gets an epoch, and calls are counted as before.
TEST_F(PrimitivesTest, NoCallBeginsAfterAFailure) {
  constexpr int kBlocks = 3;
  const LaunchShape shape = {.blocks = kBlocks, .threads = 2 * wave_size_};
  const DeviceMemory call = Upload(std::vector<device::CallEpoch>{{7, 0}});
  auto* state_of_call = call.as<device::CallEpoch>();
  for (size_t record = 0; record < device::kRecordsOfARank; ++record) {
    std::vector<uint32_t> claims(device::kRecordsOfARank);
    claims[record] = 1;
    const DeviceMemory claimed = Upload(claims);
    const device::FailurePort port = PortWith(claimed);
    const DeviceMemory epochs = Upload(std::vector<uint64_t>(kBlocks, 99));
    for (const auto launch : {LaunchBeginCall, LaunchBegunCall}) {
      ASSERT_EQ(launch(port, state_of_call, epochs.as<uint64_t>(), shape, nullptr), hipSuccess);
      EXPECT_EQ(Download<uint64_t>(epochs), std::vector<uint64_t>(kBlocks));
    }
    const std::vector<device::CallEpoch> state = Download<device::CallEpoch>(call);
    EXPECT_EQ(state[0].epoch, 8 + record);
    EXPECT_EQ(state[0].blocks_started, 0U);
  }
}

// Whoever comes second, nothing is left of what was described.
TEST_F(PrimitivesTest, WhatIsWithdrawnIsNotDescribed) {
  constexpr int kSize = 300;  // more than there are threads
  const DeviceMemory word = Upload(std::vector<uint64_t>{0});
  const DeviceMemory description = Upload(std::vector<int32_t>(kSize, 7));
  std::vector<int32_t> all(kSize);
  std::iota(all.begin(), all.end(), 1);
  uint64_t call = 0;
  for (int i = 0; i < 20; ++i) {
    for (const int late : {-1, 0, 1}) {
      const DeliveryParams params = {.word = word.as<uint64_t>(),
                                     .call = ++call,
                                     .description = description.as<int32_t>(),
                                     .size = kSize,
                                     .late = late};
      ASSERT_EQ(LaunchDelivery(params, 3 * wave_size_, nullptr), hipSuccess);
      EXPECT_EQ(Download<int32_t>(description), late < 0 ? all : std::vector<int32_t>(kSize))
          << "call " << call << ", late " << late;
    }
  }
}

// Just one block is last, it sees what all have done, and the counter is ready for the next call.
TEST_F(PrimitivesTest, OneBlockIsLastAndSeesTheOthers) {
  const DeviceMemory counter = Upload(std::vector<uint32_t>{0});
  for (const uint32_t blocks : {1U, 2U, 7U, 8U, 3U}) {
    const DeviceMemory sum = Upload(std::vector<uint32_t>{0});
    const DeviceMemory seen = Upload(std::vector<uint32_t>(blocks));
    const LaunchShape shape = {.blocks = static_cast<int>(blocks), .threads = 2 * wave_size_};
    ASSERT_EQ(LaunchLastBlock(counter.as<uint32_t>(), sum.as<uint32_t>(), seen.as<uint32_t>(),
                              shape, nullptr),
              hipSuccess);
    int last_blocks = 0;
    for (const uint32_t value : Download<uint32_t>(seen)) {
      if (value == 0) continue;
      ++last_blocks;
      EXPECT_EQ(value, blocks * (blocks + 1) / 2);
    }
    EXPECT_EQ(last_blocks, 1);
    EXPECT_EQ(Download<uint32_t>(counter)[0], 0U);
  }
}

TEST_F(PrimitivesTest, WaveExclusiveScanIsThePrefixSum) {
  for (const int n : {0, 1, 31, 32, 33, 64, 65, 256, 1000}) {
    std::vector<int32_t> values(static_cast<size_t>(n) + 1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 7 % 13) - 3;
    std::vector<int32_t> want(values);
    std::exclusive_scan(values.begin(), values.end() - 1, want.begin(), 0);
    const DeviceMemory memory = Upload(values);
    const DeviceMemory total = Upload(std::vector<int32_t>{-1});
    ASSERT_EQ(LaunchScan(memory.as<int32_t>(), n, total.as<int32_t>(), wave_size_, nullptr),
              hipSuccess);
    EXPECT_EQ(Download<int32_t>(memory), want) << n;  // the element behind the last is untouched
    EXPECT_EQ(Download<int32_t>(total)[0], std::accumulate(values.begin(), values.end() - 1, 0));
  }
}

TEST_F(PrimitivesTest, PartsOfARowCoverItOnce) {
  for (const int row_vecs : {1, 3, 15, 64, 129, 896}) {
    for (const int parts : {1, 2, 3, 4, 7, 8}) {
      const DeviceMemory hits = Upload(std::vector<uint32_t>(static_cast<size_t>(row_vecs)));
      ASSERT_EQ(LaunchParts(parts, row_vecs, hits.as<uint32_t>(), wave_size_, nullptr), hipSuccess);
      for (const uint32_t count : Download<uint32_t>(hits)) {
        EXPECT_EQ(count, 1U) << row_vecs << " vectors in " << parts << " parts";
      }
    }
  }
}

// The flags that a wave waits for one after the other have one deadline together.
TEST_F(PrimitivesTest, WaveWaitEpochsHasOneDeadline) {
  const uint64_t deadline = DeviceClockHz();
  void* pinned = nullptr;
  constexpr size_t kRecordBytes = device::kRecordsOfARank * sizeof(device::FailureRecord);
  ASSERT_EQ(hipHostMalloc(&pinned, kRecordBytes + sizeof(uint32_t),
                          hipHostMallocPortable | hipHostMallocMapped),
            hipSuccess);
  std::memset(pinned, 0, kRecordBytes + sizeof(uint32_t));
  auto* records = static_cast<device::FailureRecord*>(pinned);
  const DeviceMemory claimed = Upload(std::vector<uint32_t>(device::kRecordsOfARank));
  const DeviceMemory flags = Upload(std::vector<uint64_t>(2));
  const device::FailurePort port = {
      .abort_word = reinterpret_cast<uint32_t*>(records + device::kRecordsOfARank),
      .records = records,
      .claimed = claimed.as<uint32_t>(),
      .deadline_ticks = deadline,
      .client = 0};
  const absl::Time start = absl::Now();
  ASSERT_EQ(LaunchWaitForTwo(port, flags.as<uint64_t>(), deadline * 3 / 4, wave_size_, nullptr),
            hipSuccess);
  ASSERT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(Download<uint64_t>(flags)[0], 1U);
  EXPECT_EQ(records[0].kind, device::FailureKind::kDeadline);
  EXPECT_EQ(records[0].index, 1U);
  EXPECT_LT(absl::Now() - start, absl::Seconds(1.7));
  EXPECT_EQ(*port.abort_word, 1U);
  EXPECT_EQ(records[1].complete, 0U) << "nobody was told to leave";
  EXPECT_EQ(hipHostFree(pinned), hipSuccess);
}

}  // namespace
}  // namespace octet
