// What the emulated GPUs refuse, and how they say so.
#include <algorithm>
#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "octet/node.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/platform/emulation/emulation_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Touch kTouches[] = {Touch::kLoadStream, Touch::kStoreStream, Touch::kLoad,
                              Touch::kStore,      Touch::kAdd,         Touch::kLoadOnce,
                              Touch::kStoreOnce};

class EmulationErrorsTest : public EmulationTest {
 protected:
  EmulationErrorsTest() {
    // Without peer access between any devices.
    emulation::Config config = initial_config();
    config.stuck_timeout_ms = 300;
    Reconfigure(config);
  }
};

class EmulationTouchTest : public EmulationErrorsTest,
                           public ::testing::WithParamInterface<Touch> {};

TEST_P(EmulationTouchTest, OwnMemoryIsFine) {
  auto* memory = Allocate<char>(64);
  ASSERT_HIP_OK(LaunchTouch(GetParam(), memory + 48, nullptr));
  EXPECT_HIP_OK(hipDeviceSynchronize());
  EXPECT_EQ(emulation::LastReport(), "");
}

TEST_P(EmulationTouchTest, PeersNeedAccess) {
  auto* memory = Allocate<char>(64, 1);
  ASSERT_HIP_OK(hipSetDevice(0));
  ASSERT_HIP_OK(LaunchTouch(GetParam(), memory, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorIllegalAddress);
  EXPECT_THAT(emulation::LastReport(),
              AllOf(HasSubstr("device 0, kernel "), HasSubstr("TouchAddress"),
                    HasSubstr("block 0, wave 0, lane 0"), HasSubstr("(device 1, byte 0 of the 64"),
                    HasSubstr("emulation_errors_kernels.hip:"), HasSubstr("no peer access")));
  // Sticky, on that device.
  EXPECT_EQ(LaunchTouch(GetParam(), memory, nullptr), hipErrorIllegalAddress);
  EXPECT_EQ(hipStreamQuery(nullptr), hipErrorIllegalAddress);
  ASSERT_HIP_OK(hipSetDevice(1));
  EXPECT_HIP_OK(hipDeviceSynchronize());
  emulation::ClearErrors();
  ASSERT_HIP_OK(hipSetDevice(0));
  ASSERT_HIP_OK(hipDeviceEnablePeerAccess(1, 0));
  ASSERT_HIP_OK(LaunchTouch(GetParam(), memory, nullptr));
  EXPECT_HIP_OK(hipDeviceSynchronize());
}

TEST_P(EmulationTouchTest, OutOfBounds) {
  auto* memory = Allocate<char>(64);
  ASSERT_HIP_OK(LaunchTouch(GetParam(), memory + 64, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorIllegalAddress);
  EXPECT_THAT(emulation::LastReport(), HasSubstr("not allocated: 0 bytes past the 64"));
}

TEST_P(EmulationTouchTest, UseAfterFree) {
  char* memory = nullptr;
  ASSERT_HIP_OK(hipSetDevice(0));
  ASSERT_HIP_OK(hipMalloc(&memory, 64));
  ASSERT_HIP_OK(LaunchTouch(GetParam(), memory, nullptr));
  ASSERT_HIP_OK(hipFree(memory));
  ASSERT_HIP_OK(LaunchTouch(GetParam(), memory, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorIllegalAddress);
  EXPECT_THAT(emulation::LastReport(), HasSubstr("out of bounds or freed"));
}

TEST_P(EmulationTouchTest, HostMemoryMustBePinned) {
  std::vector<char> memory(1024);
  ASSERT_HIP_OK(hipSetDevice(0));
  char* aligned = memory.data() + (-reinterpret_cast<uintptr_t>(memory.data()) & 15);
  ASSERT_HIP_OK(LaunchTouch(GetParam(), aligned, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorIllegalAddress);
  EXPECT_THAT(emulation::LastReport(), HasSubstr("not pinned"));
}

TEST_P(EmulationTouchTest, AlignmentMatters) {
  auto* memory = Allocate<char>(64);
  ASSERT_HIP_OK(LaunchTouch(GetParam(), memory + 2, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorIllegalAddress);
  EXPECT_THAT(emulation::LastReport(), HasSubstr("misaligned"));
}

INSTANTIATE_TEST_SUITE_P(All, EmulationTouchTest, ::testing::ValuesIn(kTouches));

TEST_F(EmulationErrorsTest, DivergentWavesAreReported) {
  ASSERT_HIP_OK(LaunchDivergentWave(nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
  EXPECT_THAT(emulation::LastReport(),
              AllOf(HasSubstr("diverges: is at SyncWave (emulation_errors_kernels.hip:"),
                    HasSubstr("while others wait at SyncWave (emulation_errors_kernels.hip:"),
                    HasSubstr("DivergentWave")));
}

TEST_F(EmulationErrorsTest, WavesThatWaitAtDifferentThingsAreReported) {
  ASSERT_HIP_OK(LaunchDivergentBlock(nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
  EXPECT_THAT(emulation::LastReport(),
              AllOf(HasSubstr("diverges: is at __syncthreads"), HasSubstr("a ballot")));
}

TEST_F(EmulationErrorsTest, LeavingBeforeAGridSyncIsReported) {
  ASSERT_HIP_OK(LaunchLeaveBeforeGridSync(nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
  EXPECT_THAT(emulation::LastReport(), HasSubstr("this_grid().sync()"));
}

TEST_F(EmulationErrorsTest, DeepCallsFitOnTheStack) {
  auto* out = Allocate(1);
  const int frames = static_cast<int>(emulation::CurrentConfig().stack_bytes / 256);
  ASSERT_HIP_OK(LaunchDeepRecursion(out, frames / 4, nullptr));
  EXPECT_HIP_OK(hipDeviceSynchronize());
}

TEST_F(EmulationErrorsTest, SharedMemoryIsLimited) {
  auto* out = Allocate(32);
  ASSERT_HIP_OK(LaunchTooMuchStaticShared(out, nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchOutOfResources);
  EXPECT_THAT(emulation::LastReport(), HasSubstr("static shared memory of 48000 bytes on top of"));
}

TEST_F(EmulationErrorsTest, StuckKernelsEndWithAReport) {
  auto* flag = Allocate(4, 2);
  hipStream_t stream = nullptr;
  ASSERT_HIP_OK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  ASSERT_HIP_OK(LaunchWaitFor(flag + 2, nullptr, 5, stream));
  auto* other = Allocate(1, 3);
  ASSERT_HIP_OK(LaunchHandshake(other, other, 1, nullptr));
  EXPECT_HIP_OK(hipDeviceSynchronize());
  ASSERT_HIP_OK(LaunchWaitFor(other, nullptr, 2, nullptr));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(hipStreamSynchronize(stream), hipErrorLaunchTimeOut);
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchTimeOut);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  const std::string report = emulation::LastReport();
  EXPECT_THAT(report, HasSubstr("Kernels are stuck: none has made progress for 300 ms"));
  EXPECT_THAT(report, HasSubstr("device 2, kernel "));
  EXPECT_THAT(report, HasSubstr("WaitFor"));
  EXPECT_THAT(report, HasSubstr("block 0, wave 0, lanes 0-31: waits for the value 0 to change"));
  EXPECT_THAT(report, HasSubstr("(device 2, byte 8 of the 16 allocated at"));
  EXPECT_THAT(report, HasSubstr("device 3, kernel "));
  EXPECT_THAT(report, HasSubstr("(emulation_streams_kernels.hip:"));
  emulation::ClearErrors();
  EXPECT_HIP_OK(hipStreamSynchronize(stream));
  ASSERT_HIP_OK(LaunchStoreFlag(flag, 1, stream));
  EXPECT_HIP_OK(hipStreamSynchronize(stream));
  ASSERT_HIP_OK(hipStreamDestroy(stream));
}

// The report comes with the error, to whoever asks for its text, and so into a node's Status.
TEST_F(EmulationErrorsTest, ANodeSaysWhoWaitsForWhat) {
  auto node = Node::Create({.num_ranks = 3, .on_failure = nullptr});
  ASSERT_TRUE(node.ok()) << node.status();
  auto* flags = Allocate(3, 1);
  const absl::Status status = (*node)->Run([&](Rank& rank) -> absl::Status {
    return rank.CoordinatedLaunch([&] {
      return rank.rank() == 2
                 ? absl::OkStatus()
                 : OCTET_GPU(LaunchWaitFor(flags + rank.rank(), nullptr, 5, rank.stream()));
    });
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::MatchesRegex(
          "rank [01]: work on the rank's stream: hipErrorLaunchTimeOut: the launch timed "
          "out and was terminated \\(device [01]\\)\n"
          "Kernels are stuck: none has made progress for 300 ms\n"
          "(.|\n)*  device 1, kernel [^\n]*WaitFor[^\n]*, block 0, wave 0, lanes 0-31: waits "
          "for the value 0 to change at [^\n]*\\(device 1, byte 4 of the 12 [^\n]*(.|\n)*"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\n  device 0, kernel "));
  const absl::Status next = (*node)->Run([](Rank&) { return absl::OkStatus(); });
  EXPECT_EQ(next.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(next.message()), Not(HasSubstr("\n")));
}

TEST_F(EmulationErrorsTest, LanesThatWaitForTheSameShareALine) {
  auto* flags = Allocate(1);
  ASSERT_HIP_OK(LaunchWaitFor(flags, nullptr, 1, nullptr, {.blocks = 3, .threads = 128}));
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchTimeOut);
  const std::string report = emulation::LastReport();
  EXPECT_THAT(report, HasSubstr(", blocks 0-2, waves 0-"));
  EXPECT_EQ(std::count(report.begin(), report.end(), '\n'), 2) << report;
}

TEST_F(EmulationErrorsTest, KernelsThatWatchTheirDeadlineAreNotStuck) {
  emulation::Config config = emulation::CurrentConfig();
  config.stuck_timeout_ms = 60'000;
  Reconfigure(config);
  auto* flag = Allocate(1);
  auto* waited = Allocate<int64_t>(1);
  ASSERT_HIP_OK(LaunchWaitWithDeadline(flag, 700'000'000, waited, 256, nullptr));
  EXPECT_HIP_OK(hipDeviceSynchronize());
  EXPECT_GT(Read(waited, 1)[0], 700'000'000);
}

}  // namespace
}  // namespace octet
