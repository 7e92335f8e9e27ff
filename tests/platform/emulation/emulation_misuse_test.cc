// Misuse of the API that real GPUs may let pass, or answer with a deadlock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "emulation.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "octet/grouped_gemm.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/memory/pinned_memory.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kMisuseRanks = 2;

class MisuseTest : public ::testing::TestWithParam<Strategy> {
 protected:
  void SetUp() override {
    EpConfig config;
    config.strategy = GetParam();
    config.num_experts = 4;
    config.topk = 2;
    config.hidden = 64;
    config.max_tokens_per_rank = 4;
    auto harness = EpHarness::Create(kMisuseRanks, config);
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
    std::mt19937_64 rng(1);
    input_ = RandomStep(rng, config, std::vector<int>(kMisuseRanks, 3));
    ASSERT_OK(harness_->Upload(input_));
  }

  absl::StatusOr<Received> Dispatch(Rank& rank) {
    return harness_->ep().Dispatch(rank, harness_->dispatch_args(rank.rank()));
  }

  std::unique_ptr<EpHarness> harness_;
  StepInput input_;
};

INSTANTIATE_TEST_SUITE_P(Strategies, MisuseTest,
                         ::testing::Values(Strategy::kDirect, Strategy::kLowLatency,
                                           Strategy::kHighThroughput),
                         [](const auto& test) { return std::string(EnumName(test.param)); });

// A HIP call that can wait for a device, with what it needs.
struct WaitingCall {
  std::string name;
  std::function<hipError_t(Rank&)> call;
};

constexpr size_t kBytesPerRank = 16;

// `pinned` and `on_device` hold `kBytesPerRank` for each rank: each rank's calls touch its own.
std::vector<WaitingCall> WaitingCalls(const PinnedMemory& pinned, const DeviceMemory& on_device) {
  const auto of_rank = [](auto& memory, const Rank& rank) {
    return memory.template as<std::byte>() + rank.rank() * kBytesPerRank;
  };
  return {
      {"hipMalloc",
       [](Rank&) {
         void* memory = nullptr;
         const hipError_t error = hipMalloc(&memory, 64);
         EXPECT_NE(memory, nullptr) << "the call has to do its work";
         return error != hipSuccess ? error : hipFree(memory);
       }},
      {"hipExtMallocWithFlags",
       [](Rank&) {
         void* memory = nullptr;
         const hipError_t error = hipExtMallocWithFlags(&memory, 64, hipDeviceMallocUncached);
         return error != hipSuccess ? error : hipFree(memory);
       }},
      {"hipHostMalloc",
       [](Rank&) {
         void* memory = nullptr;
         const hipError_t error = hipHostMalloc(&memory, 64);
         return error != hipSuccess ? error : hipHostFree(memory);
       }},
      {"hipMemset",
       [&, of_rank](Rank& rank) { return hipMemset(of_rank(on_device, rank), 0, kBytesPerRank); }},
      {"hipMemcpy",
       [&, of_rank](Rank& rank) {
         return hipMemcpy(of_rank(on_device, rank), of_rank(pinned, rank), kBytesPerRank,
                          hipMemcpyDefault);
       }},
      {"hipDeviceSynchronize", [](Rank&) { return hipDeviceSynchronize(); }},
      {"hipStreamSynchronize", [](Rank& rank) { return hipStreamSynchronize(rank.stream()); }},
      {"hipStreamCreateWithFlags",
       [](Rank&) {
         hipStream_t stream = nullptr;
         const hipError_t error = hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
         return error != hipSuccess ? error : hipStreamDestroy(stream);
       }},
  };
}

TEST_P(MisuseTest, CallsThatCanWaitForADeviceWhileKernelsWaitFailTheRun) {
  auto pinned = PinnedMemory::Allocate(kMisuseRanks * kBytesPerRank);
  auto on_device = DeviceMemory::Allocate(kMisuseRanks * kBytesPerRank);
  ASSERT_OK(pinned.status());
  ASSERT_OK(on_device.status());
  for (const WaitingCall& call : WaitingCalls(*pinned, *on_device)) {
    SCOPED_TRACE(call.name);
    const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(Dispatch(rank).status());
      return rank.rank() == 1 ? GpuStatus(call.call(rank), call.name) : absl::OkStatus();
    });
    EXPECT_THAT(
        status,
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(StartsWith(absl::StrCat("rank 1: ", call.name, " is called while kernel ")),
                       HasSubstr("Dispatch"), HasSubstr("on device 1"))));
    EXPECT_OK(harness_->Step(input_));  // the node has recovered
    ASSERT_OK(harness_->Upload(input_));
  }
}

TEST_P(MisuseTest, TheSameCallsAreFineBeforeTheLaunchAndAfterSynchronize) {
  auto pinned = PinnedMemory::Allocate(kMisuseRanks * kBytesPerRank);
  auto on_device = DeviceMemory::Allocate(kMisuseRanks * kBytesPerRank);
  ASSERT_OK(pinned.status());
  ASSERT_OK(on_device.status());
  const auto calls = WaitingCalls(*pinned, *on_device);
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const auto call_all = [&]() -> absl::Status {
      for (const WaitingCall& call : calls) {
        OCTET_RETURN_IF_ERROR(GpuStatus(call.call(rank), call.name));
      }
      return absl::OkStatus();
    };
    OCTET_RETURN_IF_ERROR(call_all());
    OCTET_ASSIGN_OR_RETURN(const Received received, Dispatch(rank));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(call_all());
    ScaledCombineArgs args = harness_->combine_args(rank.rank());
    args.expert_out = received.x;
    OCTET_RETURN_IF_ERROR(ScaledCombine(harness_->ep(), rank, received.handle, args));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    return call_all();
  }));
}

// An argument of a call, and how to put it in.
struct Argument {
  std::string name;
  void (*put)(const void* pointer, DispatchArgs& dispatch, CombineArgs& combine);
};

const std::vector<Argument>& Arguments() {
  static const std::vector<Argument> kArguments = {
      {"x", [](const void* p, DispatchArgs& d, CombineArgs&) { d.x = p; }},
      {"topk_idx", [](const void* p, DispatchArgs& d,
                      CombineArgs&) { d.topk_idx = static_cast<const int32_t*>(p); }},
      {"topk_weights", [](const void* p, DispatchArgs& d,
                          CombineArgs&) { d.topk_weights = static_cast<const float*>(p); }},
      {"expert_out", [](const void* p, DispatchArgs&, CombineArgs& c) { c.expert_out = p; }},
      {"y", [](const void* p, DispatchArgs&, CombineArgs& c) { c.y = const_cast<void*>(p); }},
  };
  return kArguments;
}

TEST_P(MisuseTest, ArgumentsElsewhereThanOnTheRanksOwnGpuAreRefused) {
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  constexpr size_t kBytes = 1 << 16;
  auto of_rank_0 = DeviceMemory::Allocate(kBytes);
  auto pinned = PinnedMemory::Allocate(kBytes);
  ASSERT_OK(of_rank_0.status());
  ASSERT_OK(pinned.status());
  alignas(16) static char host[kBytes];
  const std::vector<std::pair<const void*, std::string>> places = {
      {of_rank_0->as<void>(), "device 0"},
      {pinned->as<void>(), "pinned host memory"},
      {host, "host memory that is not pinned"},
  };
  for (const Argument& argument : Arguments()) {
    for (const auto& [pointer, place] : places) {
      SCOPED_TRACE(argument.name + " in " + place);
      const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
        DispatchArgs dispatch = harness_->dispatch_args(rank.rank());
        ScaledCombineArgs combine = harness_->combine_args(rank.rank());
        combine.expert_out = dispatch.x;  // room enough, and never read
        if (rank.rank() == 1) argument.put(pointer, dispatch, combine);
        OCTET_ASSIGN_OR_RETURN(const Received received, harness_->ep().Dispatch(rank, dispatch));
        if (rank.rank() == 0) combine.expert_out = received.x;
        return ScaledCombine(harness_->ep(), rank, received.handle, combine);
      });
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr(argument.name + " of rank 1 is "),
                                         HasSubstr(place), HasSubstr("own device, 1"))));
    }
  }
}

// Emulated memory knows its size, so that what would end in an illegal access has a name, and does
// not begin.
TEST_P(MisuseTest, ArgumentsThatAreTooSmallAreRefusedByNameAndSize) {
  std::vector<DeviceMemory> memory(kMisuseRanks);
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    DeviceMemory& small = memory[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(small, DeviceMemory::Allocate(16));
    const auto refused = [&rank](const absl::Status& status, absl::string_view name) {
      const std::string text = absl::StrCat(name, " of rank ", rank.rank(),
                                            " has 16 bytes up to the end of its allocation; the "
                                            "call needs ");
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(text)));
    };
    const DispatchArgs good = harness_->dispatch_args(rank.rank());
    DispatchArgs args = good;
    args.x = small.as<void>();
    refused(harness_->ep().Dispatch(rank, args).status(), "x");
    args = good;
    args.topk_idx = small.as<int32_t>();
    refused(harness_->ep().Dispatch(rank, args).status(), "topk_idx");
    args = good;
    args.topk_weights = small.as<float>();
    refused(harness_->ep().Dispatch(rank, args).status(), "topk_weights");
    OCTET_ASSIGN_OR_RETURN(const Received received, harness_->ep().Dispatch(rank, good));
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = small.as<void>();
    refused(ScaledCombine(harness_->ep(), rank, received.handle, combine), "expert_out");
    combine.expert_out = received.x;
    combine.y = small.as<void>();
    refused(ScaledCombine(harness_->ep(), rank, received.handle, combine), "y");
    return absl::OkStatus();
  }));
  EXPECT_EQ(emulation::LastReport(), "");
  EXPECT_OK(harness_->Step(input_));
}

// A graph that is destroyed stays as long as its last launch runs.
TEST_P(MisuseTest, AGraphMayBeDestroyedWhileItRuns) {
  std::vector<std::unique_ptr<Graph>> graphs(kMisuseRanks);
  const auto step = [&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, Dispatch(rank));
    ScaledCombineArgs args = harness_->combine_args(rank.rank());
    args.expert_out = received.x;
    return ScaledCombine(harness_->ep(), rank, received.handle, args);
  };
  ASSERT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, [&] { return step(rank); }));
    graphs[static_cast<size_t>(rank.rank())] = std::make_unique<Graph>(std::move(graph));
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    std::unique_ptr<Graph>& graph = graphs[static_cast<size_t>(rank.rank())];
    std::atomic<bool> destroyed = false;
    const auto await = [](void* flag) {
      while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
    };
    // The graph cannot begin earlier.
    OCTET_RETURN_IF_GPU_ERROR(hipLaunchHostFunc(rank.stream(), await, &destroyed));
    const absl::Status launched = graph->Launch(rank);
    graph.reset();
    destroyed = true;
    OCTET_RETURN_IF_ERROR(launched);
    return rank.Synchronize();
  }));
  EXPECT_EQ(emulation::LastReport(), "");
  EXPECT_OK(harness_->Step(input_));
}

TEST(GroupedGemmMisuseTest, ArgumentsElsewhereThanOnItsGpuAreRefused) {
  ASSERT_EQ(hipSetDevice(1), hipSuccess);
  auto elsewhere = DeviceMemory::Allocate(1 << 16);
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  auto memory = DeviceMemory::Allocate(1 << 16);
  auto gemm = GroupedGemm::Create({.experts = 1, .max_rows = 8, .n = 16, .k = 16});
  ASSERT_OK(elsewhere.status());
  ASSERT_OK(memory.status());
  ASSERT_OK(gemm.status());
  constexpr size_t kPiece = 1 << 12;
  ASSERT_EQ(hipMemset(memory->as<void>(), 0, memory->bytes()), hipSuccess);
  auto* const base = memory->as<char>();
  const GroupedGemmArgs good = {
      .a = base,
      .b = base + kPiece,
      .expert_offsets = reinterpret_cast<const int32_t*>(base + 2 * kPiece),
      .out = base + 3 * kPiece};
  EXPECT_OK((*gemm)->Run(good, nullptr));
  const auto refused = [](const std::string& name) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("GroupedGemmArgs::" + name + " is 0x"),
                          HasSubstr("(device 1, byte 0"), HasSubstr("own GPU, 0")));
  };
  GroupedGemmArgs args = good;
  args.a = elsewhere->as<void>();
  EXPECT_THAT((*gemm)->Run(args, nullptr), refused("a"));
  args = good;
  args.b = elsewhere->as<void>();
  EXPECT_THAT((*gemm)->Run(args, nullptr), refused("b"));
  args = good;
  args.expert_offsets = elsewhere->as<int32_t>();
  EXPECT_THAT((*gemm)->Run(args, nullptr), refused("expert_offsets"));
  args = good;
  args.out = elsewhere->as<void>();
  EXPECT_THAT((*gemm)->Run(args, nullptr), refused("out"));
  // 8 rows of 32 bytes, of which there is room for 5.
  args = good;
  args.out = base + memory->bytes() - 5 * 32;
  EXPECT_THAT((*gemm)->Run(args, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("GroupedGemmArgs::out has 160 bytes up to the end of its "
                                 "allocation; the call needs 256, 8 rows of 32 bytes")));
  args.rows = 5;
  EXPECT_OK((*gemm)->Run(args, nullptr));
  args.rows = 9;
  EXPECT_THAT((*gemm)->Run(args, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("GroupedGemmArgs::rows is 9; it must be 0 to max_rows, 8")));
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
}

}  // namespace
}  // namespace octet
