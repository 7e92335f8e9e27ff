// Seeded schedules of the emulated GPUs.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <tuple>

#include "gpu_schedule.h"
#include "tests/platform/emulation/emulation_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr emulation::ScheduleKind kKinds[] = {
    emulation::ScheduleKind::kRandom,      emulation::ScheduleKind::kStarveDevice,
    emulation::ScheduleKind::kStarveBlock, emulation::ScheduleKind::kStarveWave,
    emulation::ScheduleKind::kDelayDevice, emulation::ScheduleKind::kLap,
};

// A wave, and the tickets that it took.
struct WaveTickets {
  int device;
  int block;
  int wave;
  uint32_t first = UINT32_MAX;
  uint32_t last = 0;
};

// Whether one of the groups that `key` makes took all its tickets after everybody else's, or before
// everybody else's if not `last`.
bool IsApart(const std::vector<WaveTickets>& waves,
             const std::function<std::tuple<int, int, int>(const WaveTickets&)>& key, bool last) {
  std::map<std::tuple<int, int, int>, WaveTickets> groups;
  for (const WaveTickets& wave : waves) {
    WaveTickets& group = groups[key(wave)];
    group.first = std::min(group.first, wave.first);
    group.last = std::max(group.last, wave.last);
  }
  for (const auto& [name, group] : groups) {
    bool apart = true;
    for (const auto& [other_name, other] : groups) {
      if (other_name == name) continue;
      apart = apart && (last ? other.last < group.first : group.last < other.first);
    }
    if (apart) return true;
  }
  return false;
}

class EmulationScheduleTest : public EmulationTest {
 protected:
  void UseSeed(uint64_t seed, int workers = 1,
               emulation::ScheduleKind kind = emulation::ScheduleKind::kRandom) {
    emulation::Config config = initial_config();
    config.schedule = kind;
    config.seed = seed;
    config.workers = workers;
    Reconfigure(config);
  }

  std::vector<uint32_t> Order(uint64_t seed, emulation::ScheduleKind kind) {
    constexpr int kBlocks = 3;
    constexpr int kThreads = 70;
    UseSeed(seed, 1, kind);
    auto* words = Allocate(1 + 4 * kBlocks * kThreads);
    EXPECT_HIP_OK(
        LaunchTickets(words, words + 1, {.blocks = kBlocks, .threads = kThreads}, nullptr));
    return Read(words + 1, 4 * kBlocks * kThreads);
  }

  // Devices whose blocks take tickets from one counter.
  std::vector<WaveTickets> TicketsOfWaves(emulation::ScheduleKind kind, uint64_t seed) {
    constexpr int kDevices = 3;
    constexpr int kBlocks = 2;
    constexpr int kThreads = 128;
    constexpr uint32_t kNobody = UINT32_MAX;
    constexpr size_t kTickets = 4 * kDevices * kBlocks * kThreads;
    UseSeed(seed, 1, kind);
    EnablePeerAccess();
    auto* counter = Allocate(1, 0);
    std::vector<uint32_t*> orders;
    for (int device = 0; device < kDevices; ++device) {
      orders.push_back(Allocate(kTickets, device));
      EXPECT_HIP_OK(hipMemset(orders.back(), 0xff, kTickets * sizeof(uint32_t)));
    }
    for (int device = 0; device < kDevices; ++device) {
      EXPECT_HIP_OK(hipSetDevice(device));
      EXPECT_HIP_OK(LaunchTickets(counter, orders[static_cast<size_t>(device)],
                                  {.blocks = kBlocks, .threads = kThreads}, nullptr));
    }
    std::map<std::tuple<int, int, int>, WaveTickets> waves;
    for (int device = 0; device < kDevices; ++device) {
      EXPECT_HIP_OK(hipSetDevice(device));
      EXPECT_HIP_OK(hipDeviceSynchronize());
      const std::vector<uint32_t> order = Read(orders[static_cast<size_t>(device)], kTickets);
      for (uint32_t ticket = 0; ticket < kTickets; ++ticket) {
        if (order[ticket] == kNobody) continue;
        const int thread = static_cast<int>(order[ticket]);
        const int block = thread / kThreads;
        const int wave = thread % kThreads / emulation::CurrentConfig().wave_size;
        auto [entry, added] = waves.try_emplace({device, block, wave});
        if (added) entry->second = {device, block, wave};
        entry->second.first = std::min(entry->second.first, ticket);
        entry->second.last = std::max(entry->second.last, ticket);
      }
    }
    std::vector<WaveTickets> result;
    for (const auto& [name, wave] : waves) result.push_back(wave);
    return result;
  }

  // How often the consumer has seen a value that was not meant for it.
  uint32_t Pass(uint64_t seed, bool wait_for_consumer,
                emulation::ScheduleKind kind = emulation::ScheduleKind::kRandom) {
    UseSeed(seed, 1, kind);
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
  for (const emulation::ScheduleKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const std::vector<uint32_t> first = Order(7, kind);
    EXPECT_EQ(first, Order(7, kind));
    EXPECT_THAT(Order(8, kind), Not(first));
  }
}

TEST_F(EmulationScheduleTest, AScheduleIsAText) {
  emulation::Config config;
  EXPECT_EQ(emulation::ScheduleText(config), "");
  ASSERT_TRUE(emulation::ParseSchedule("starve_wave:17", &config));
  EXPECT_EQ(config.schedule, emulation::ScheduleKind::kStarveWave);
  EXPECT_EQ(config.seed, 17U);
  EXPECT_EQ(emulation::ScheduleText(config), "starve_wave:17");

  // A seed alone picks the kind, and the text says which.
  std::map<std::string, int> kinds;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    ASSERT_TRUE(emulation::ParseSchedule(std::to_string(seed), &config));
    const std::string text = emulation::ScheduleText(config);
    ++kinds[text.substr(0, text.find(':'))];
    emulation::Config same;
    ASSERT_TRUE(emulation::ParseSchedule(text, &same));
    EXPECT_EQ(same.seed, seed);
  }
  EXPECT_EQ(kinds.size(), 6U);
  for (const auto& [kind, count] : kinds) {
    EXPECT_THAT(emulation::ScheduleKinds(), HasSubstr(kind));
  }

  for (const char* text : {"", "0", "lap", "lap:", "lap:0", "lap:x", "late:3", ":3", "-1", "3 "}) {
    EXPECT_FALSE(emulation::ParseSchedule(text, &config)) << text;
  }
}

TEST_F(EmulationScheduleTest, OneIsLate) {
  using Kind = emulation::ScheduleKind;
  const auto device = [](const WaveTickets& w) { return std::make_tuple(w.device, 0, 0); };
  const auto block = [](const WaveTickets& w) { return std::make_tuple(w.device, w.block, 0); };
  const auto wave = [](const WaveTickets& w) { return std::make_tuple(w.device, w.block, w.wave); };
  constexpr uint64_t kSeeds = 10;
  const auto count = [&](Kind kind, const auto& key, bool last) {
    int found = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      if (IsApart(TicketsOfWaves(kind, seed), key, last)) ++found;
    }
    return found;
  };
  EXPECT_GE(count(Kind::kStarveDevice, device, /*last=*/true), 8);
  EXPECT_GE(count(Kind::kStarveBlock, block, /*last=*/true), 8);
  EXPECT_GE(count(Kind::kStarveWave, wave, /*last=*/true), 8);
  EXPECT_GE(count(Kind::kDelayDevice, device, /*last=*/true), 8);
  EXPECT_GE(count(Kind::kLap, device, /*last=*/false), 8);
  EXPECT_LE(count(Kind::kRandom, device, /*last=*/true), 5);
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

TEST_F(EmulationScheduleTest, LappedConsumersAreFound) {
  using Kind = emulation::ScheduleKind;
  for (const Kind kind : {Kind::kStarveDevice, Kind::kDelayDevice, Kind::kLap}) {
    SCOPED_TRACE(static_cast<int>(kind));
    int found = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      EXPECT_EQ(Pass(seed, /*wait_for_consumer=*/true, kind), 0U);
      if (Pass(seed, /*wait_for_consumer=*/false, kind) > 0) ++found;
    }
    EXPECT_GE(found, 5);  // the producer is the one that is early in half of them
  }
}

// What one host enqueues does not start before another one, whom it has released, has had its say.
TEST_F(EmulationScheduleTest, HostsThatWereReleasedAreWaitedFor) {
  UseSeed(3);
  hipEvent_t starts[2];
  uint32_t* words[2];
  for (int device = 0; device < 2; ++device) {
    words[device] = Allocate(1 + 4 * 64, device);
    EXPECT_HIP_OK(hipEventCreate(&starts[device]));
  }
  const auto enqueue = [&](int device) {
    EXPECT_HIP_OK(hipSetDevice(device));
    EXPECT_HIP_OK(hipEventRecord(starts[device], nullptr));
    EXPECT_HIP_OK(
        LaunchTickets(words[device], words[device] + 1, {.blocks = 1, .threads = 64}, nullptr));
  };
  std::atomic<bool> waits{false};
  std::atomic<bool> released{false};
  std::atomic<bool> has_ended{false};
  std::thread late([&] {
    {
      const platform::HostWait wait([&] { return released.load(); });
      waits = true;
      while (!released) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    enqueue(1);
    EXPECT_HIP_OK(hipDeviceSynchronize());
    has_ended = true;
  });
  while (!waits) std::this_thread::yield();
  enqueue(0);
  released = true;
  EXPECT_HIP_OK(hipDeviceSynchronize());
  {
    const platform::HostWait wait([&] { return has_ended.load(); });
    late.join();
  }
  float apart = -1;
  EXPECT_HIP_OK(hipEventElapsedTime(&apart, starts[0], starts[1]));
  EXPECT_EQ(apart, 0) << "ms of virtual time";
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
