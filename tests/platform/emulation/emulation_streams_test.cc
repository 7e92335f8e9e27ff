// Streams, events, memory and time of the emulated GPUs, seen from the host.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "memory/poison.h"
#include "tests/platform/emulation/emulation_fixture.h"
#include "tests/platform/emulation/emulation_streams_fixture.h"
#include "tests/support/no_more_threads.h"

namespace octet {
namespace {

using ::testing::Each;

TEST_F(EmulationStreamsTest, OperationsOfAStreamAreInOrder) {
  constexpr int kCount = 1000;
  auto* a = Allocate(kCount);
  auto* b = Allocate(kCount);
  hipStream_t stream = NewStream();
  for (int i = 0; i < 20; ++i) {
    ASSERT_HIP_OK(LaunchIncrement(a, b, kCount, stream));
    ASSERT_HIP_OK(hipMemcpyAsync(a, b, kCount * 4, hipMemcpyDeviceToDevice, stream));
  }
  std::vector<uint32_t> values(kCount);
  ASSERT_HIP_OK(hipMemcpyAsync(values.data(), a, kCount * 4, hipMemcpyDeviceToHost, stream));
  ASSERT_HIP_OK(hipStreamSynchronize(stream));
  EXPECT_THAT(values, Each(20U));
  EXPECT_EQ(hipStreamQuery(stream), hipSuccess);
  ASSERT_HIP_OK(hipStreamDestroy(stream));
  EXPECT_EQ(hipStreamSynchronize(stream), hipErrorInvalidHandle);
}

TEST_F(EmulationStreamsTest, StreamsOfADeviceAdvanceTogether) {
  auto* flag = Allocate(1);
  hipStream_t waits = NewStream();
  hipStream_t stores = NewStream();
  ASSERT_HIP_OK(LaunchWaitFor(flag, nullptr, 1, waits));
  EXPECT_EQ(hipStreamQuery(waits), hipErrorNotReady);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
  ASSERT_HIP_OK(LaunchStoreFlag(flag, 1, stores));
  EXPECT_HIP_OK(hipStreamSynchronize(waits));
  ASSERT_HIP_OK(hipStreamDestroy(waits));
  ASSERT_HIP_OK(hipStreamDestroy(stores));
}

TEST_F(EmulationStreamsTest, BlocksThatFitMayWaitForOneAnother) {
  hipDeviceProp_t properties;
  ASSERT_HIP_OK(hipGetDeviceProperties(&properties, 0));
  const int threads = properties.maxThreadsPerBlock / 2;
  const int blocks = 2 * properties.multiProcessorCount;
  ASSERT_GT(blocks, 2);
  auto* flags = Allocate(static_cast<size_t>(blocks));
  hipStream_t stream = NewStream();
  ASSERT_HIP_OK(LaunchAwaitNextBlock(flags, blocks, threads, stream));
  EXPECT_HIP_OK(hipStreamSynchronize(stream));
  std::vector<uint32_t> values(static_cast<size_t>(blocks));
  ASSERT_HIP_OK(hipMemcpy(values.data(), flags, values.size() * 4, hipMemcpyDeviceToHost));
  EXPECT_THAT(values, Each(1U));
  ASSERT_HIP_OK(hipStreamDestroy(stream));
}

TEST_F(EmulationStreamsTest, PollingTwoWordsLetsOthersRun) {
  auto* flags = Allocate(2);
  hipStream_t waits = NewStream();
  hipStream_t stores = NewStream();
  ASSERT_HIP_OK(LaunchWaitFor(flags, flags + 1, 1, waits));
  ASSERT_HIP_OK(LaunchStoreFlag(flags, 1, stores));
  EXPECT_HIP_OK(hipStreamSynchronize(waits));
  ASSERT_HIP_OK(hipStreamDestroy(waits));
  ASSERT_HIP_OK(hipStreamDestroy(stores));
}

TEST_F(EmulationStreamsTest, TheNullStreamWaitsForBlockingStreams) {
  auto* words = Allocate(2);
  hipStream_t blocking = NewStream(hipStreamDefault);
  hipStream_t free = NewStream();
  ASSERT_HIP_OK(LaunchWaitFor(words, nullptr, 1, blocking));
  ASSERT_HIP_OK(LaunchStoreFlag(words + 1, 1, nullptr));  // the null stream
  EXPECT_EQ(hipStreamQuery(nullptr), hipErrorNotReady);
  ASSERT_HIP_OK(LaunchStoreFlag(words, 1, free));
  EXPECT_HIP_OK(hipStreamSynchronize(nullptr));
  EXPECT_EQ(hipStreamQuery(blocking), hipSuccess);
  ASSERT_HIP_OK(hipStreamDestroy(blocking));
  ASSERT_HIP_OK(hipStreamDestroy(free));
}

TEST_F(EmulationStreamsTest, EventsOrderStreamsOfDifferentDevices) {
  auto* flag = Allocate(1, 0);
  hipStream_t first = NewStream();
  auto* in = Allocate(1, 1);
  auto* out = Allocate(1, 1);
  hipStream_t second = NewStream();
  hipEvent_t event = nullptr;
  ASSERT_HIP_OK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  EXPECT_HIP_OK(hipEventQuery(event));  // never recorded
  ASSERT_HIP_OK(hipSetDevice(0));
  ASSERT_HIP_OK(LaunchWaitFor(flag, nullptr, 1, first));
  ASSERT_HIP_OK(hipEventRecord(event, first));
  ASSERT_HIP_OK(hipSetDevice(1));
  ASSERT_HIP_OK(hipStreamWaitEvent(second, event, 0));
  ASSERT_HIP_OK(LaunchIncrement(in, out, 1, second));
  EXPECT_EQ(hipEventQuery(event), hipErrorNotReady);
  EXPECT_EQ(hipStreamQuery(second), hipErrorNotReady);
  ASSERT_HIP_OK(hipSetDevice(0));
  ASSERT_HIP_OK(LaunchStoreFlag(flag, 1, nullptr));
  EXPECT_HIP_OK(hipEventSynchronize(event));
  EXPECT_HIP_OK(hipStreamSynchronize(second));
  EXPECT_EQ(Read(out, 1)[0], 1U);
  ASSERT_HIP_OK(hipEventDestroy(event));
  EXPECT_EQ(hipEventQuery(event), hipErrorInvalidHandle);
  ASSERT_HIP_OK(hipStreamDestroy(first));
  ASSERT_HIP_OK(hipStreamDestroy(second));
}

TEST_F(EmulationStreamsTest, EventsTellTime) {
  auto* flag = Allocate(1);
  auto* waited = Allocate<int64_t>(1);
  hipEvent_t start = nullptr;
  hipEvent_t stop = nullptr;
  ASSERT_HIP_OK(hipEventCreate(&start));
  ASSERT_HIP_OK(hipEventCreate(&stop));
  float ms = -1;
  EXPECT_EQ(hipEventElapsedTime(&ms, start, stop), hipErrorInvalidHandle);
  ASSERT_HIP_OK(hipEventRecord(start, nullptr));
  ASSERT_HIP_OK(LaunchWaitWithDeadline(flag, 20'000'000, waited, 1, nullptr));
  ASSERT_HIP_OK(hipEventRecord(stop, nullptr));
  EXPECT_EQ(hipEventElapsedTime(&ms, start, stop), hipErrorNotReady);
  ASSERT_HIP_OK(hipEventSynchronize(stop));
  ASSERT_HIP_OK(hipEventElapsedTime(&ms, start, stop));
  EXPECT_GE(ms, 20.0F);
  EXPECT_LT(ms, 1000.0F);
  ASSERT_HIP_OK(hipEventDestroy(start));
  ASSERT_HIP_OK(hipEventDestroy(stop));
}

// Kernels that look at the clock only now and then still notice their deadline soon.
TEST_F(EmulationStreamsTest, DeadlinesAreNoticed) {
  auto* flag = Allocate(1);
  auto* waited = Allocate<int64_t>(1);
  for (const int polls_per_clock : {1, 256}) {
    ASSERT_HIP_OK(LaunchWaitWithDeadline(flag, 10'000'000, waited, polls_per_clock, nullptr));
    ASSERT_HIP_OK(hipDeviceSynchronize());
    const int64_t ticks = Read(waited, 1)[0];
    EXPECT_GT(ticks, 10'000'000);
    EXPECT_LT(ticks, 500'000'000);
  }
}

TEST_F(EmulationStreamsTest, KernelsOfAllDevicesRunAtOnce) {
  int devices = 0;
  ASSERT_HIP_OK(hipGetDeviceCount(&devices));
  EnablePeerAccess();
  std::vector<uint32_t*> flags;
  for (int i = 0; i < devices; ++i) flags.push_back(Allocate(1, i));
  for (uint32_t round = 1; round <= 50; ++round) {
    for (int i = 0; i < devices; ++i) {
      ASSERT_HIP_OK(hipSetDevice(i));
      ASSERT_HIP_OK(LaunchHandshake(flags[static_cast<size_t>(i)],
                                    flags[static_cast<size_t>((i + 1) % devices)], round, nullptr));
    }
  }
  for (int i = 0; i < devices; ++i) {
    ASSERT_HIP_OK(hipSetDevice(i));
    EXPECT_HIP_OK(hipDeviceSynchronize());
  }
}

TEST_F(EmulationStreamsTest, HostThreadsThatPollDoNotStarveTheDevices) {
  int devices = 0;
  ASSERT_HIP_OK(hipGetDeviceCount(&devices));
  EnablePeerAccess();
  std::vector<uint32_t*> flags;
  for (int i = 0; i < devices; ++i) flags.push_back(Allocate(1, i));
  std::vector<std::thread> threads;
  for (int i = 0; i < devices; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_HIP_OK(hipSetDevice(i));
      hipStream_t stream = NewStream();
      for (uint32_t round = 1; round <= 20; ++round) {
        EXPECT_HIP_OK(LaunchHandshake(flags[static_cast<size_t>(i)],
                                      flags[static_cast<size_t>((i + 1) % devices)], round,
                                      stream));
        while (hipStreamQuery(stream) == hipErrorNotReady) {
        }
      }
      EXPECT_HIP_OK(hipStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EmulationStreamsTest, HostFunctionsRunInOrder) {
  auto* flag = Allocate(1);
  hipStream_t stream = NewStream();
  std::atomic<int> calls{0};
  ASSERT_HIP_OK(LaunchWaitFor(flag, nullptr, 1, stream));
  ASSERT_HIP_OK(hipLaunchHostFunc(
      stream, [](void* counter) { static_cast<std::atomic<int>*>(counter)->fetch_add(1); },
      &calls));
  EXPECT_EQ(hipStreamQuery(stream), hipErrorNotReady);
  EXPECT_EQ(calls.load(), 0);
  ASSERT_HIP_OK(LaunchStoreFlag(flag, 1, nullptr));
  ASSERT_HIP_OK(hipStreamSynchronize(stream));
  EXPECT_EQ(calls.load(), 1);
  ASSERT_HIP_OK(hipStreamDestroy(stream));
}

TEST_F(EmulationStreamsTest, HostFunctionsNeedAThread) {
  emulation::Reconfigure(emulation::CurrentConfig());  // a machine that has run none
  int calls = 0;
  const auto count = [](void* counter) { ++*static_cast<int*>(counter); };
  {
    const NoMoreThreads no_more_threads;
    EXPECT_EQ(hipLaunchHostFunc(nullptr, count, &calls), hipErrorOutOfMemory);
  }
  EXPECT_EQ(hipGetLastError(), hipErrorOutOfMemory);
  ASSERT_HIP_OK(hipLaunchHostFunc(nullptr, count, &calls));
  ASSERT_HIP_OK(hipStreamSynchronize(nullptr));
  EXPECT_EQ(calls, 1);
}

TEST_F(EmulationStreamsTest, AMachineNeedsAThread) {
  {
    const NoMoreThreads no_more_threads;
    emulation::Reconfigure(emulation::CurrentConfig());
  }
  int devices = 0;
  EXPECT_EQ(hipGetDeviceCount(&devices), hipErrorOutOfMemory);
  void* memory = nullptr;
  EXPECT_EQ(hipMalloc(&memory, 4), hipErrorOutOfMemory);
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorOutOfMemory);
  emulation::Reconfigure(emulation::CurrentConfig());
  (void)hipGetLastError();
  ASSERT_HIP_OK(hipGetDeviceCount(&devices));
  EXPECT_GT(devices, 0);
}

TEST_F(EmulationStreamsTest, PinnedMemoryIsSharedWithTheHost) {
  uint32_t* flag = nullptr;
  ASSERT_HIP_OK(hipHostMalloc(&flag, 4, hipHostMallocMapped));
  *flag = 0;
  void* on_device = nullptr;
  ASSERT_HIP_OK(hipHostGetDevicePointer(&on_device, flag, 0));
  ASSERT_HIP_OK(LaunchWaitFor(static_cast<uint32_t*>(on_device), nullptr, 7, nullptr));
  EXPECT_EQ(hipStreamQuery(nullptr), hipErrorNotReady);
  __atomic_store_n(flag, 7, __ATOMIC_RELEASE);
  EXPECT_HIP_OK(hipDeviceSynchronize());
  hipPointerAttribute_t attributes;
  ASSERT_HIP_OK(hipPointerGetAttributes(&attributes, flag));
  EXPECT_EQ(attributes.type, hipMemoryTypeHost);
  EXPECT_EQ(hipFree(flag), hipErrorInvalidValue);
  EXPECT_HIP_OK(hipHostFree(flag));
}

// Poison is in nobody's range, whatever type it is read as.
TEST_F(EmulationStreamsTest, PoisonIsNoIndexAndNoNumber) {
  const uint32_t word = emulation::kPoisonWord;
  EXPECT_GT(std::bit_cast<int32_t>(word), 1'000'000'000);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(word)));
  EXPECT_TRUE(std::isnan(std::bit_cast<double>(uint64_t{word} << 32 | word)));
  // A NaN has all bits of the exponent and some of the mantissa.
  const auto is_nan = [](uint32_t bits, uint32_t exponent, uint32_t mantissa) {
    return (bits & exponent) == exponent && (bits & mantissa) != 0;
  };
  EXPECT_TRUE(is_nan(emulation::kPoison, 0x7f80, 0x007f)) << "bfloat16";
  EXPECT_TRUE(is_nan(emulation::kPoison, 0x7c00, 0x03ff)) << "fp16";
  for (const uint32_t byte : {emulation::kPoisonWord & 0xffU, emulation::kPoisonWord >> 24U}) {
    EXPECT_EQ(byte & 0x7fU, 0x7fU) << "e4m3fn";
    EXPECT_TRUE(is_nan(byte, 0x7c, 0x03)) << "e5m2";
  }
}

// Everywhere, not only at the edges, and without memory for what is not touched.
TEST_F(EmulationStreamsTest, FreshAndFreedMemoryIsPoisoned) {
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr size_t kWords = kBytes / sizeof(uint32_t);
  struct Kind {
    hipError_t (*allocate)(void** memory);
    hipError_t (*free)(void* memory);
  };
  const Kind kinds[] = {
      {[](void** memory) { return hipMalloc(memory, kBytes); }, hipFree},
      {[](void** memory) { return hipExtMallocWithFlags(memory, kBytes, hipDeviceMallocUncached); },
       hipFree},
      {[](void** memory) { return hipHostMalloc(memory, kBytes); }, hipHostFree},
  };
  for (const Kind& kind : kinds) {
    const size_t before = ResidentBytes();
    void* memory = nullptr;
    ASSERT_HIP_OK(kind.allocate(&memory));
    auto* words = static_cast<uint32_t*>(memory);
    const auto poisoned = [&](size_t i) { return words[i] == emulation::kPoisonWord; };
    for (size_t i = 0; i < kWords; i += (4 << 20) + 1) EXPECT_TRUE(poisoned(i)) << "word " << i;
    EXPECT_TRUE(poisoned(kWords - 1));
    EXPECT_LT(ResidentBytes(), before + kBytes / 4);  // ASan's shadow takes an eighth
    words[kWords / 2] = 0;
    ASSERT_HIP_OK(kind.free(memory));
    EXPECT_TRUE(poisoned(kWords / 2)) << "freed";
  }
}

// Small memory stays when it is freed, and is used again; not before much else has been.
TEST_F(EmulationStreamsTest, MemoryThatIsUsedAgainIsPoisoned) {
  constexpr size_t kBytes = 100'000;
  constexpr size_t kWords = kBytes / sizeof(uint32_t);
  constexpr int kTurns = 1000;
  std::map<void*, int> last;  // turn, by address
  int reused = 0;
  size_t at_half = 0;  // all addresses have come by then, and with them a sanitizer's shadow memory
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn == kTurns / 2) at_half = ResidentBytes();
    void* memory = nullptr;
    ASSERT_HIP_OK(hipMalloc(&memory, kBytes));
    auto* const words = static_cast<uint32_t*>(memory);
    ASSERT_EQ(std::count(words, words + kWords, emulation::kPoisonWord), kWords) << "turn " << turn;
    if (const auto earlier = last.find(memory); earlier != last.end()) {
      EXPECT_GT(turn - earlier->second, 100);
      ++reused;
    }
    last[memory] = turn;
    // Some pages alone, as most are.
    for (size_t i = static_cast<size_t>(turn) % 5 * 700; i < kWords; i += 2500) words[i] = 1;
    words[kWords - 1] = 1;
    ASSERT_HIP_OK(hipFree(memory));
  }
  EXPECT_GT(reused, kTurns / 2);
  EXPECT_LT(ResidentBytes(), at_half + kTurns / 2 * kBytes / 4);
}

TEST_F(EmulationStreamsTest, FreedMemoryIsGivenBack) {
  constexpr size_t kBytes = 256 << 20;
  size_t free_before = 0;
  size_t total = 0;
  ASSERT_HIP_OK(hipMemGetInfo(&free_before, &total));
  char* memory = nullptr;
  ASSERT_HIP_OK(hipMalloc(&memory, kBytes));
  ASSERT_HIP_OK(hipMemset(memory, 1, kBytes));
  const size_t with = ResidentBytes();
  size_t free_with = 0;
  ASSERT_HIP_OK(hipMemGetInfo(&free_with, &total));
  EXPECT_EQ(free_before - free_with, kBytes);
  ASSERT_HIP_OK(hipFree(memory));
  EXPECT_LT(ResidentBytes(), with - kBytes / 2);
  EXPECT_EQ(hipMalloc(&memory, total + 1), hipErrorOutOfMemory);
  EXPECT_EQ(hipGetLastError(), hipErrorOutOfMemory);
}

TEST_F(EmulationStreamsTest, CopiesCheckTheirPointers) {
  auto* memory = Allocate<char>(100);
  char host[200] = {};
  EXPECT_EQ(hipMemcpy(memory, host, 101, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_EQ(hipMemcpy(memory + 99, host, 2, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_EQ(hipMemcpy(memory - 1, host, 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_EQ(hipMemcpy(memory, nullptr, 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_EQ(hipMemcpy(memory, reinterpret_cast<void*>(4096), 1, hipMemcpyDefault),
            hipErrorInvalidValue);
  EXPECT_EQ(hipMemcpy(host, host + 100, 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_EQ(hipMemcpy(memory, host, 1, hipMemcpyDeviceToHost), hipErrorInvalidValue);
  EXPECT_EQ(hipMemset(memory, 0, 101), hipErrorInvalidValue);
  EXPECT_EQ(hipMemset(host, 0, 1), hipErrorInvalidValue);
  char* freed = nullptr;
  ASSERT_HIP_OK(hipMalloc(&freed, 100));
  ASSERT_HIP_OK(hipFree(freed));
  EXPECT_EQ(hipMemset(freed, 0, 100), hipErrorInvalidValue);
  EXPECT_EQ(hipFree(freed), hipErrorInvalidValue);
  EXPECT_EQ(hipFree(memory + 16), hipErrorInvalidValue);
  EXPECT_HIP_OK(hipFree(nullptr));
  EXPECT_EQ(hipGetLastError(), hipErrorInvalidValue);
}

TEST_F(EmulationStreamsTest, PeerCopiesNeedNoPeerAccess) {
  auto* from = Allocate(4, 0);
  auto* to = Allocate(4, 1);
  ASSERT_HIP_OK(hipMemset(from, 3, 16));
  EXPECT_HIP_OK(hipMemcpyPeerAsync(to, 1, from, 0, 16, nullptr));
  EXPECT_THAT(Read(to, 4), Each(0x03030303U));
  EXPECT_EQ(hipMemcpyPeerAsync(to, 0, from, 0, 16, nullptr), hipErrorInvalidValue);
}

TEST_F(EmulationStreamsTest, DevicesAndPeers) {
  int devices = 0;
  ASSERT_HIP_OK(hipGetDeviceCount(&devices));
  EXPECT_EQ(hipSetDevice(devices), hipErrorInvalidDevice);
  int can = -1;
  ASSERT_HIP_OK(hipDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  ASSERT_HIP_OK(hipDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  char id[32];
  ASSERT_HIP_OK(hipDeviceGetPCIBusId(id, sizeof(id), 1));
  EXPECT_STREQ(id, "0000:02:00.0");
  emulation::Config config = initial_config();
  config.devices = 2;
  Reconfigure(config);
  ASSERT_HIP_OK(hipGetDeviceCount(&devices));
  EXPECT_EQ(devices, 2);
  ASSERT_HIP_OK(hipSetDevice(0));
  EXPECT_HIP_OK(hipDeviceEnablePeerAccess(1, 0));
  (void)hipGetLastError();
  EXPECT_EQ(hipDeviceEnablePeerAccess(1, 0), hipErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(hipGetLastError(), hipErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
  EXPECT_HIP_OK(hipDeviceDisablePeerAccess(1));
  EXPECT_EQ(hipDeviceDisablePeerAccess(1), hipErrorPeerAccessNotEnabled);
  EXPECT_STREQ(hipGetErrorName(hipErrorPeerAccessNotEnabled), "hipErrorPeerAccessNotEnabled");
}

}  // namespace
}  // namespace octet
