// Weak memory shows what is missing between a store and a load of it, and nothing else. Only built
// with it.
#include "tests/platform/emulation/emulation_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EmulationWeakTest : public EmulationTest {
 protected:
  static constexpr uint64_t kSeeds = 10;
  static constexpr uint64_t kManySeeds = 1000;

  void UseSeed(uint64_t seed) {
    emulation::Config config = initial_config();
    config.seed = seed;
    config.devices = 2;
    Reconfigure(config);
    EnablePeerAccess();
  }

  // Old values read while device 0 sends a row to itself or device 1, and whether the row that
  // came was wrong.
  struct Outcome {
    emulation::StaleReads stale;
    bool wrong = false;
  };
  Outcome Send(uint64_t seed, Publish publish, Consume consume, int receiver, bool relay = false) {
    UseSeed(seed);
    auto* row = Allocate<char>(kRowBytes, receiver);
    auto* flag = Allocate(2, receiver);
    auto* to = Allocate<char>(kRowBytes, receiver);
    hipStream_t streams[2] = {};
    for (hipStream_t& stream : streams) {
      EXPECT_HIP_OK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    }
    EXPECT_HIP_OK(LaunchReceiveRow(consume, row, relay ? flag + 1 : flag, 7, to, streams[0]));
    if (relay) EXPECT_HIP_OK(LaunchRelay(flag, flag + 1, 7, streams[1]));
    EXPECT_HIP_OK(hipSetDevice(0));
    EXPECT_HIP_OK(LaunchSendRow(publish, row, flag, 7, nullptr));
    EXPECT_HIP_OK(hipDeviceSynchronize());
    EXPECT_HIP_OK(hipSetDevice(receiver));
    EXPECT_HIP_OK(hipDeviceSynchronize());
    Outcome outcome;
    outcome.stale = emulation::TakeStaleReads();
    for (const uint32_t word : Read(reinterpret_cast<uint32_t*>(to), kRowBytes / 4)) {
      if (word != 7) outcome.wrong = true;
    }
    return outcome;
  }
  Outcome Exchange(uint64_t seed, Meet meet, int blocks) {
    UseSeed(seed);
    constexpr int kThreads = 128;
    auto* values = Allocate(kThreads * static_cast<size_t>(blocks));
    auto* counter = Allocate(1);
    auto* errors = Allocate(1);
    EXPECT_HIP_OK(LaunchExchange(
        meet, values, counter, errors,
        {.blocks = blocks, .threads = kThreads, .shared_bytes = kThreads * sizeof(uint32_t)},
        nullptr));
    EXPECT_HIP_OK(hipDeviceSynchronize());
    Outcome outcome;
    outcome.stale = emulation::TakeStaleReads();
    outcome.wrong = Read(errors, 1)[0] != 0;
    return outcome;
  }

  template <typename Run>
  static void ExpectClean(uint64_t seeds, Run run) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const Outcome outcome = run(seed);
      ASSERT_EQ(outcome.stale.count, 0U) << "seed " << seed << "\n" << outcome.stale.text;
      ASSERT_FALSE(outcome.wrong) << "seed " << seed;
    }
  }
  // Returns the first report.
  template <typename Run>
  static std::string ExpectCaught(Run run) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Outcome outcome = run(seed);
      EXPECT_EQ(outcome.wrong, outcome.stale.count > 0);
      if (outcome.wrong) return outcome.stale.text;
    }
    ADD_FAILURE() << "not found with " << kSeeds << " seeds";
    return "";
  }
};

TEST_F(EmulationWeakTest, MessagesBetweenDevicesArrive) {
  for (const Publish publish : {Publish::kRelease, Publish::kFence}) {
    for (const Consume consume : {Consume::kFence, Consume::kAcquire}) {
      ExpectClean(kManySeeds / 4, [&](uint64_t seed) { return Send(seed, publish, consume, 1); });
    }
  }
}

TEST_F(EmulationWeakTest, SendersMustRelease) {
  const auto send = [&](Publish publish) {
    return ExpectCaught([&](uint64_t seed) { return Send(seed, publish, Consume::kFence, 1); });
  };
  const std::string report = send(Publish::kRelaxed);
  EXPECT_THAT(report,
              HasSubstr("device 1, kernel octet::(anonymous namespace)::ReceiveRow, block"));
  EXPECT_THAT(report,
              HasSubstr("stored by device 0, kernel octet::(anonymous namespace)::SendRow"));
  EXPECT_THAT(report, HasSubstr("not released at system scope\n"));
  // The value arrives at last, as nothing orders it.
  EXPECT_THAT(ExpectCaught([&](uint64_t seed) {
                Outcome outcome = Send(seed, Publish::kPlainFlag, Consume::kFence, 1);
                EXPECT_FALSE(outcome.wrong);
                outcome.wrong = outcome.stale.count > 0;
                return outcome;
              }),
              HasSubstr("by an atomic (emulation_race_kernels.hip:"));
  EXPECT_THAT(send(Publish::kReleaseDevice), HasSubstr("only at device scope"));
  EXPECT_THAT(send(Publish::kFenceDevice), HasSubstr("only at device scope"));
  EXPECT_THAT(send(Publish::kNoWaveSync), HasSubstr("not released at system scope\n"));
  EXPECT_THAT(send(Publish::kOtherWave), HasSubstr("not released at system scope\n"));
}

TEST_F(EmulationWeakTest, ReceiversMustAcquire) {
  const auto receive = [&](Consume consume) {
    return ExpectCaught([&](uint64_t seed) { return Send(seed, Publish::kRelease, consume, 1); });
  };
  for (const Consume how : {Consume::kFenceDevice, Consume::kRelaxed, Consume::kNoWaveSync}) {
    EXPECT_THAT(receive(how), HasSubstr("released, but not acquired at system scope since"));
  }
}

TEST_F(EmulationWeakTest, WithinADeviceItsScopeWillDo) {
  ExpectClean(kSeeds, [&](uint64_t seed) {
    return Send(seed, Publish::kReleaseDevice, Consume::kFenceDevice, 0);
  });
  ExpectCaught(
      [&](uint64_t seed) { return Send(seed, Publish::kReleaseDevice, Consume::kRelaxed, 0); });
}

TEST_F(EmulationWeakTest, WhatOneHasAcquiredItReleases) {
  ExpectClean(kSeeds, [&](uint64_t seed) {
    return Send(seed, Publish::kRelease, Consume::kFenceDevice, 1, /*relay=*/true);
  });
  ExpectCaught([&](uint64_t seed) {
    return Send(seed, Publish::kRelease, Consume::kRelaxed, 1, /*relay=*/true);
  });
  ExpectCaught([&](uint64_t seed) {
    return Send(seed, Publish::kReleaseDevice, Consume::kFenceDevice, 1, /*relay=*/true);
  });
}

TEST_F(EmulationWeakTest, BlocksAndGridsMeet) {
  for (const Meet meet : {Meet::kBarrier, Meet::kReleaseBlock, Meet::kReleaseDevice}) {
    ExpectClean(kSeeds, [&](uint64_t seed) { return Exchange(seed, meet, 1); });
  }
  for (const Meet meet : {Meet::kBarrier, Meet::kReleaseDevice}) {
    ExpectClean(kSeeds, [&](uint64_t seed) { return Exchange(seed, meet, 3); });
  }
  EXPECT_THAT(ExpectCaught([&](uint64_t seed) { return Exchange(seed, Meet::kRelaxed, 1); }),
              AllOf(HasSubstr("shared memory, byte"), HasSubstr("nor ordered by __syncthreads")));
  EXPECT_THAT(ExpectCaught([&](uint64_t seed) { return Exchange(seed, Meet::kRelaxed, 3); }),
              HasSubstr("nor ordered by this_grid().sync()"));
  EXPECT_THAT(ExpectCaught([&](uint64_t seed) { return Exchange(seed, Meet::kReleaseBlock, 3); }),
              HasSubstr("only at block scope"));
}

TEST_F(EmulationWeakTest, ASeedMeansTheSameRun) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto count = [&] {
      return Send(seed, Publish::kRelaxed, Consume::kRelaxed, 1).stale.count;
    };
    EXPECT_EQ(count(), count());
  }
}

}  // namespace
}  // namespace octet
