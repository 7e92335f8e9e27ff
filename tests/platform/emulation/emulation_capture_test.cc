// Graphs of emulated GPUs.
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "memory/poison.h"
#include "tests/platform/emulation/emulation_fixture.h"
#include "tests/platform/emulation/emulation_streams_fixture.h"
#include "tests/support/no_more_threads.h"

namespace octet {
namespace {

using ::testing::Each;

hipStreamCaptureStatus StatusOfCapture(hipStream_t stream) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  EXPECT_HIP_OK(hipStreamIsCapturing(stream, &status));
  return status;
}

TEST_F(EmulationStreamsTest, AGraphRepeatsWhatAStreamWasGiven) {
  constexpr int kCount = 100;
  auto* a = Allocate(kCount);
  auto* b = Allocate(kCount);
  hipStream_t stream = NewStream();
  hipStream_t other = NewStream();
  std::vector<uint32_t> host(kCount, 40);
  std::vector<int> calls;
  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
  ASSERT_HIP_OK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  EXPECT_EQ(StatusOfCapture(stream), hipStreamCaptureStatusActive);
  EXPECT_EQ(StatusOfCapture(other), hipStreamCaptureStatusNone);
  ASSERT_HIP_OK(hipMemcpyAsync(a, host.data(), kCount * 4, hipMemcpyHostToDevice, stream));
  ASSERT_HIP_OK(hipMemsetAsync(a, 0, 4, stream));
  ASSERT_HIP_OK(LaunchIncrement(a, b, kCount, stream));
  ASSERT_HIP_OK(LaunchIncrement(b, a, kCount, stream));
  ASSERT_HIP_OK(hipLaunchHostFunc(
      stream, [](void* argument) { static_cast<std::vector<int>*>(argument)->push_back(1); },
      &calls));
  ASSERT_HIP_OK(hipStreamEndCapture(stream, &graph));
  ASSERT_HIP_OK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  ASSERT_HIP_OK(hipGraphDestroy(graph));
  ASSERT_HIP_OK(hipStreamSynchronize(stream));
  EXPECT_THAT(Read(a, kCount), Each(0U));  // nothing was executed

  for (uint32_t i = 1; i <= 3; ++i) {
    host.assign(kCount, 40 * i);
    ASSERT_HIP_OK(hipGraphLaunch(executable, i == 2 ? other : stream));
    ASSERT_HIP_OK(hipStreamSynchronize(i == 2 ? other : stream));
    const std::vector<uint32_t> values = Read(a, kCount);
    EXPECT_EQ(values[0], 2U);
    EXPECT_EQ(values[1], 40 * i + 2);
    EXPECT_EQ(calls.size(), i);
  }

  ASSERT_HIP_OK(hipSetDevice(1));
  hipStream_t elsewhere = NewStream();
  EXPECT_EQ(hipGraphLaunch(executable, elsewhere), hipErrorInvalidValue);
  ASSERT_HIP_OK(hipStreamDestroy(elsewhere));
  FreeAll();
  EXPECT_EQ(hipGraphLaunch(executable, stream), hipErrorInvalidValue);
  ASSERT_HIP_OK(hipGraphExecDestroy(executable));
  ASSERT_HIP_OK(hipStreamDestroy(stream));
  ASSERT_HIP_OK(hipStreamDestroy(other));
}

// As on GPUs: a capture in the global mode forbids it to all threads, one in the thread-local mode
// to its own, and one in the relaxed mode to none.
TEST_F(EmulationStreamsTest, AllocationDuringACaptureDependsOnItsMode) {
  struct Case {
    hipStreamCaptureMode mode;
    hipError_t own;
    hipError_t other;
  };
  for (const Case& each :
       {Case{hipStreamCaptureModeGlobal, hipErrorStreamCaptureUnsupported,
             hipErrorStreamCaptureUnsupported},
        Case{hipStreamCaptureModeThreadLocal, hipErrorStreamCaptureUnsupported, hipSuccess},
        Case{hipStreamCaptureModeRelaxed, hipSuccess, hipSuccess}}) {
    SCOPED_TRACE(each.mode);
    const auto allocate = [] {
      void* memory = nullptr;
      const hipError_t error = hipMalloc(&memory, 64);
      return error != hipSuccess ? error : hipFree(memory);
    };
    for (const bool own : {false, true}) {
      const hipError_t expected = own ? each.own : each.other;
      hipStream_t stream = NewStream();
      hipGraph_t graph = nullptr;
      ASSERT_HIP_OK(hipStreamBeginCapture(stream, each.mode));
      hipError_t error = hipErrorUnknown;
      if (own) {
        error = allocate();
      } else {
        std::thread([&] { error = allocate(); }).join();
      }
      EXPECT_EQ(error, expected);
      EXPECT_EQ(hipStreamEndCapture(stream, &graph),
                expected == hipSuccess ? hipSuccess : hipErrorStreamCaptureInvalidated);
      if (graph != nullptr) ASSERT_HIP_OK(hipGraphDestroy(graph));
      ASSERT_HIP_OK(hipStreamDestroy(stream));
    }
  }
}

TEST_F(EmulationStreamsTest, WhatCannotBeCapturedIsRefused) {
  hipStream_t stream = NewStream();
  hipGraph_t graph = nullptr;
  EXPECT_EQ(hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal),
            hipErrorStreamCaptureUnsupported);
  EXPECT_EQ(hipStreamEndCapture(stream, &graph), hipErrorIllegalState);
  const auto captured_with = [&](auto call) {
    EXPECT_HIP_OK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    EXPECT_EQ(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), hipErrorIllegalState);
    EXPECT_EQ(call(), hipErrorStreamCaptureUnsupported);
    EXPECT_EQ(StatusOfCapture(stream), hipStreamCaptureStatusInvalidated);
    EXPECT_EQ(hipStreamEndCapture(stream, &graph), hipErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(StatusOfCapture(stream), hipStreamCaptureStatusNone);
  };
  void* memory = Allocate(4);
  void* host = nullptr;
  ASSERT_HIP_OK(hipHostMalloc(&host, 16));
  void* made = nullptr;
  captured_with([&] { return hipMalloc(&made, 16); });
  captured_with([&] { return hipExtMallocWithFlags(&made, 16, hipDeviceMallocUncached); });
  captured_with([&] { return hipHostMalloc(&made, 16); });
  EXPECT_EQ(made, nullptr);
  captured_with([&] { return hipFree(memory); });
  captured_with([&] { return hipHostFree(host); });
  captured_with([&] { return hipMemcpy(memory, host, 16, hipMemcpyDefault); });
  captured_with([&] { return hipMemset(memory, 0, 16); });
  captured_with([&] { return hipDeviceSynchronize(); });
  ASSERT_HIP_OK(hipHostFree(host));
  captured_with([&] { return hipStreamSynchronize(stream); });
  captured_with([&] { return hipStreamQuery(stream); });
  ASSERT_HIP_OK(hipStreamDestroy(stream));
}

// A second stream joins a capture and does a part of the work beside the first.
TEST_F(EmulationStreamsTest, AGraphHoldsTheStreamsThatJoinedItsCapture) {
  constexpr int kCount = 100;
  auto* a = Allocate(kCount);
  auto* b = Allocate(kCount);
  auto* c = Allocate(kCount);
  hipStream_t stream = NewStream();
  hipStream_t side = NewStream();
  hipEvent_t fork = nullptr;
  hipEvent_t join = nullptr;
  ASSERT_HIP_OK(hipEventCreate(&fork));
  ASSERT_HIP_OK(hipEventCreate(&join));
  const auto enqueue = [&] {
    ASSERT_HIP_OK(hipMemsetAsync(a, 1, kCount * 4, stream));
    ASSERT_HIP_OK(hipEventRecord(fork, stream));
    ASSERT_HIP_OK(hipStreamWaitEvent(side, fork, 0));
    ASSERT_HIP_OK(LaunchIncrement(a, b, kCount, side));
    ASSERT_HIP_OK(hipEventRecord(join, side));
    ASSERT_HIP_OK(LaunchIncrement(a, c, kCount, stream));
    ASSERT_HIP_OK(hipStreamWaitEvent(stream, join, 0));
    ASSERT_HIP_OK(LaunchIncrement(b, a, kCount, stream));
  };
  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
  ASSERT_HIP_OK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  enqueue();
  EXPECT_EQ(StatusOfCapture(side), hipStreamCaptureStatusActive);
  EXPECT_EQ(hipEventQuery(fork), hipErrorCapturedEvent);
  ASSERT_HIP_OK(hipStreamEndCapture(stream, &graph));
  EXPECT_EQ(StatusOfCapture(side), hipStreamCaptureStatusNone);
  EXPECT_EQ(hipStreamWaitEvent(stream, fork, 0), hipErrorCapturedEvent);
  ASSERT_HIP_OK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  ASSERT_HIP_OK(hipGraphDestroy(graph));
  for (int launch = 0; launch < 3; ++launch) {
    ASSERT_HIP_OK(hipMemset(b, 0, kCount * 4));
    ASSERT_HIP_OK(hipMemset(c, 0, kCount * 4));
    ASSERT_HIP_OK(hipGraphLaunch(executable, stream));
    ASSERT_HIP_OK(hipStreamSynchronize(stream));
    EXPECT_THAT(Read(a, kCount), Each(0x01010103U));
    EXPECT_THAT(Read(c, kCount), Each(0x01010102U));
  }

  // A graph with two streams inside another capture.
  ASSERT_HIP_OK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  ASSERT_HIP_OK(hipGraphLaunch(executable, stream));
  ASSERT_HIP_OK(LaunchIncrement(a, c, kCount, stream));
  ASSERT_HIP_OK(hipStreamEndCapture(stream, &graph));
  hipGraphExec_t outer = nullptr;
  ASSERT_HIP_OK(hipGraphInstantiate(&outer, graph, nullptr, nullptr, 0));
  ASSERT_HIP_OK(hipGraphDestroy(graph));
  ASSERT_HIP_OK(hipGraphLaunch(outer, stream));
  ASSERT_HIP_OK(hipStreamSynchronize(stream));
  EXPECT_THAT(Read(c, kCount), Each(0x01010104U));
  ASSERT_HIP_OK(hipGraphExecDestroy(outer));

  enqueue();  // outside a capture, the events and streams work as before
  ASSERT_HIP_OK(hipStreamSynchronize(stream));
  EXPECT_THAT(Read(a, kCount), Each(0x01010103U));
  ASSERT_HIP_OK(hipGraphExecDestroy(executable));
  for (hipEvent_t event : {fork, join}) ASSERT_HIP_OK(hipEventDestroy(event));
  for (hipStream_t each : {stream, side}) ASSERT_HIP_OK(hipStreamDestroy(each));
}

TEST_F(EmulationStreamsTest, StreamsThatCannotJoinACaptureAreRefused) {
  auto* a = Allocate(1);
  hipStream_t stream = NewStream();
  hipStream_t side = NewStream();
  hipEvent_t event = nullptr;
  ASSERT_HIP_OK(hipEventCreate(&event));
  hipGraph_t graph = nullptr;
  const auto begin = [&] {
    ASSERT_HIP_OK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  };
  const auto fork = [&] {
    ASSERT_HIP_OK(hipEventRecord(event, stream));
    ASSERT_HIP_OK(hipStreamWaitEvent(side, event, 0));
  };
  // Ends the capture, with `expected`, and leaves no stream captured.
  const auto ends_with = [&](hipError_t expected) {
    EXPECT_EQ(hipStreamEndCapture(stream, &graph), expected);
    EXPECT_EQ(StatusOfCapture(stream), hipStreamCaptureStatusNone);
    EXPECT_EQ(StatusOfCapture(side), hipStreamCaptureStatusNone);
    if (graph != nullptr) ASSERT_HIP_OK(hipGraphDestroy(graph));
  };
  begin();  // work of another stream that nobody waits for
  fork();
  ASSERT_HIP_OK(LaunchIncrement(a, a, 1, side));
  ends_with(hipErrorStreamCaptureUnjoined);
  begin();  // nothing to wait for
  fork();
  ends_with(hipSuccess);
  begin();  // only the stream that began a capture can end it
  fork();
  EXPECT_EQ(hipStreamEndCapture(side, &graph), hipErrorStreamCaptureUnmatched);
  ends_with(hipErrorStreamCaptureInvalidated);

  ASSERT_HIP_OK(hipEventRecord(event, side));  // before the capture
  begin();
  EXPECT_EQ(hipStreamWaitEvent(stream, event, 0), hipErrorStreamCaptureIsolation);
  ends_with(hipErrorStreamCaptureInvalidated);

  begin();  // two captures
  ASSERT_HIP_OK(hipStreamBeginCapture(side, hipStreamCaptureModeThreadLocal));
  ASSERT_HIP_OK(hipEventRecord(event, stream));
  EXPECT_EQ(hipStreamWaitEvent(side, event, 0), hipErrorStreamCaptureMerge);
  EXPECT_EQ(hipStreamEndCapture(side, &graph), hipErrorStreamCaptureInvalidated);
  ends_with(hipErrorStreamCaptureInvalidated);

  begin();  // the null stream, and a stream of another device
  ASSERT_HIP_OK(hipEventRecord(event, stream));
  EXPECT_EQ(hipStreamWaitEvent(nullptr, event, 0), hipErrorStreamCaptureUnsupported);
  ends_with(hipErrorStreamCaptureInvalidated);
  ASSERT_HIP_OK(hipSetDevice(1));
  hipStream_t elsewhere = NewStream();
  begin();
  ASSERT_HIP_OK(hipEventRecord(event, stream));
  EXPECT_EQ(hipStreamWaitEvent(elsewhere, event, 0), hipErrorCapturedEvent);
  ends_with(hipSuccess);

  begin();  // destroyed during the capture
  fork();
  ASSERT_HIP_OK(hipStreamDestroy(side));
  EXPECT_EQ(hipStreamEndCapture(stream, &graph), hipErrorStreamCaptureInvalidated);
  begin();
  ASSERT_HIP_OK(hipEventRecord(event, stream));
  ASSERT_HIP_OK(hipStreamDestroy(stream));
  EXPECT_EQ(hipStreamWaitEvent(elsewhere, event, 0), hipErrorCapturedEvent);
  ASSERT_HIP_OK(hipEventDestroy(event));
  ASSERT_HIP_OK(hipStreamDestroy(elsewhere));
}

}  // namespace
}  // namespace octet
