// ThreadSanitizer sees lanes as threads and knows what scoped atomics order. Only built with it.
#include <atomic>
#include <thread>

#include "tests/platform/emulation/emulation_fixture.h"

namespace {

std::atomic<int> reports{0};

}  // namespace

// ThreadSanitizer's hooks. The races here are wanted: each is told, and none fails the program.
extern "C" {
void __tsan_on_report(void* /*report*/) { reports.fetch_add(1); }
const char* __tsan_default_options() {
  return "exitcode=0:suppress_equal_stacks=0:suppress_equal_addresses=0";
}
}

namespace octet {
namespace {

class EmulationRaceTest : public EmulationTest {
 protected:
  static constexpr uint32_t kRounds = 3;

  // Races reported while device 0 sends rows to device 1 (or to itself).
  int RacesOf(Publish how, int receiver) {
    EnablePeerAccess();
    auto* row = Allocate<char>(kRowBytes, receiver);
    auto* flag = Allocate(1, receiver);
    auto* to = Allocate<char>(kRowBytes, receiver);
    hipStream_t stream = nullptr;
    EXPECT_HIP_OK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    EXPECT_HIP_OK(hipSetDevice(0));
    reports.store(0);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      EXPECT_HIP_OK(hipSetDevice(receiver));
      EXPECT_HIP_OK(LaunchReceiveRow(Consume::kFence, row, flag, round, to, stream));
      EXPECT_HIP_OK(hipSetDevice(0));
      EXPECT_HIP_OK(LaunchSendRow(how, row, flag, round, nullptr));
      EXPECT_HIP_OK(hipDeviceSynchronize());
      EXPECT_HIP_OK(hipStreamSynchronize(stream));
    }
    EXPECT_HIP_OK(hipStreamDestroy(stream));
    return reports.load();
  }
};

// Races reported while the host waits for a record that a kernel writes into pinned memory.
int RacesWithHost(Publish how) {
  uint32_t* record = nullptr;
  EXPECT_HIP_OK(hipHostMalloc(&record, 16));
  std::atomic_ref<uint32_t> flag(*record);
  flag.store(0);
  reports.store(0);
  EXPECT_HIP_OK(LaunchWriteRecord(how, record, 5, nullptr));
  while (flag.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(record[i], 5U);
  const int races = reports.load();
  EXPECT_HIP_OK(hipDeviceSynchronize());
  EXPECT_HIP_OK(hipHostFree(record));
  return races;
}

TEST_F(EmulationRaceTest, TheHostTakesPart) {
  EXPECT_EQ(RacesWithHost(Publish::kRelease), 0);
  EXPECT_GT(RacesWithHost(Publish::kRelaxed), 0);
}
TEST_F(EmulationRaceTest, ReleaseAndAcquireOrder) {
  EXPECT_EQ(RacesOf(Publish::kRelease, 1), 0);
  EXPECT_EQ(RacesOf(Publish::kFence, 1), 0);
}
TEST_F(EmulationRaceTest, RelaxedDoesNot) { EXPECT_GT(RacesOf(Publish::kRelaxed, 1), 0); }
TEST_F(EmulationRaceTest, ScopesMatter) {
  EXPECT_GT(RacesOf(Publish::kReleaseDevice, 1), 0);
  EXPECT_EQ(RacesOf(Publish::kReleaseDevice, 0), 0);
}
TEST_F(EmulationRaceTest, LanesAreThreads) { EXPECT_GT(RacesOf(Publish::kNoWaveSync, 1), 0); }

}  // namespace
}  // namespace octet
