// Kernels that never end and never let anything else run on their worker's thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "emulation.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/platform/emulation/emulation_fixture.h"
#include "tests/platform/emulation/emulation_kernels.h"
#include "tests/runtime/node_run_fixture.h"
#include "tests/support/node/node_kernels.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

uint32_t* PinnedWord() {
  void* memory = nullptr;
  EXPECT_HIP_OK(hipHostMalloc(&memory, sizeof(uint32_t), hipHostMallocPortable));
  auto* word = static_cast<uint32_t*>(memory);
  *word = 0;
  return word;
}

void EndKernel(uint32_t* word) { std::atomic_ref<uint32_t>(*word).store(1); }

class EmulationEndlessTest : public EmulationTest {
 protected:
  void UseTwoWorkers() {
    emulation::Config config = initial_config();
    config.devices = 4;
    config.workers = 2;  // devices 0 and 2, and 1 and 3, share a thread
    config.seed = 0;
    Reconfigure(config);
  }
};

TEST_F(EmulationEndlessTest, TheProcessSaysSoAndEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(60);
        UseTwoWorkers();
        (void)hipSetDevice(1);
        (void)LaunchEndless(PinnedWord(), nullptr);
        sleep(1);  // until it runs
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      "emulation: device 1, kernel .*EndlessKernel.*has run for .* s");
}

TEST_F(EmulationEndlessTest, AnotherMachineTakesOver) {
  UseTwoWorkers();
  uint32_t* const word = PinnedWord();
  ASSERT_HIP_OK(LaunchEndless(word, nullptr));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto start = std::chrono::steady_clock::now();
  ::testing::internal::CaptureStderr();
  UseTwoWorkers();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_THAT(said, MatchesRegex("emulation: device 0, kernel [^\n]*EndlessKernel[^\n]*\n"));
  uint32_t* const other = PinnedWord();
  EXPECT_HIP_OK(LaunchEndless(other, nullptr));
  EndKernel(other);
  EXPECT_HIP_OK(hipDeviceSynchronize());
  EndKernel(word);  // its memory is still there
}

// A host function of a stream, likewise.
TEST_F(EmulationEndlessTest, AHostFunctionIsLeftBehind) {
  UseTwoWorkers();
  static std::atomic<bool> over;
  over = false;
  ASSERT_HIP_OK(hipSetDevice(2));
  ASSERT_HIP_OK(hipLaunchHostFunc(
      nullptr,
      [](void* /*argument*/) {
        while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      nullptr));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::testing::internal::CaptureStderr();
  UseTwoWorkers();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("emulation: device 2, a host function [^\n]*\n"));
  over = true;
}

class EndlessNodeTest : public NodeRunTest {
 protected:
  EndlessNodeTest() : initial_(emulation::CurrentConfig()) {
    emulation::Config config = initial_;
    config.devices = kRanks;
    config.workers = 2;
    config.seed = 0;
    emulation::Reconfigure(config);
  }
  ~EndlessNodeTest() override {
    ring_.reset();
    node_.reset();
    emulation::Reconfigure(initial_);
  }

  // Returns the status of a Run in which rank 1 begins with a kernel that lasts until a second
  // after the failure.
  absl::Status RunBeside(hipError_t (*launch)(uint32_t* word, hipStream_t stream)) {
    uint32_t* const word = PinnedWord();
    std::thread ends([this, word] {
      WaitForNote();
      std::this_thread::sleep_for(std::chrono::seconds(1));
      EndKernel(word);
    });
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      if (rank.rank() == 1) OCTET_RETURN_IF_GPU_ERROR(launch(word, rank.stream()));
      return rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, 1); });
    });
    ends.join();
    EXPECT_HIP_OK(hipHostFree(word));
    return status;
  }

 private:
  const emulation::Config initial_;
};

// Rank 1 spins; rank 3 cannot run, since the same thread would run it. Rank 0 waits for rank 3 and
// rank 2 for rank 1: either may come to its deadline first.
TEST_F(EndlessNodeTest, TheKernelThatHoldsTheThreadIsNamed) {
  if (emulation::CurrentConfig().workers != 2) GTEST_SKIP() << "one thread runs all devices";
  Make(absl::Milliseconds(500));
  if (IsSkipped()) return;
  const absl::Status status = RunBeside(LaunchEndless);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank [02]: ring site 7 waited [^\n]* for rank [13]'s [^\n]*; "
                                    "(device 3 has had no chance to run: )?kernel [^\n]*"
                                    "EndlessKernel[^\n]* has held [^\n]*\n(.|\n)*")));
  EXPECT_THAT(std::string(status.message()),
              MatchesRegex("(.|\n)*rank 0: ring site 7 waited [^\n]* for rank 3's [^\n]*; "
                           "device 3 has had no chance to run: kernel [^\n]*EndlessKernel[^\n]* of "
                           "device 1 has held the thread of both for [^;]* s\n(.|\n)*"));
  ASSERT_EQ(Noted().size(), 1U);
  EXPECT_THAT(std::string(Noted()[0].message()), HasSubstr("EndlessKernel"));
  // The rank that it runs on.
  EXPECT_THAT(std::string(status.message()),
              MatchesRegex("(.|\n)*rank 1: [^\n]*its stream was busy with other work [^\n]*: "
                           "kernel [^\n]*EndlessKernel[^\n]* has held its thread for (.|\n)*"));
  EXPECT_OK(GoodRun());
}

// Nothing is said of kernels that run long but let others run.
TEST_F(EndlessNodeTest, AKernelThatLetsOthersRunHoldsNothing) {
  Make(absl::Milliseconds(300));
  if (IsSkipped()) return;
  const absl::Status status = RunBeside(LaunchStubborn);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, Not(HasSubstr("has held"))));
}

}  // namespace
}  // namespace octet
