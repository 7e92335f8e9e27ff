// Nodes, what may outlive them, and Node::Run without failures.
#include "octet/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "octet/symmetric_heap.h"
#include "octet/trace.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/runtime/node_run_fixture.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"
#include "tests/support/scoped_environment.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// ---- creation

TEST_F(NodeTest, NamesHowManyGpusThereAre) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const int gpus = std::min(NumGpus(), kMaxRanks - 1);
  if (NumGpus() < kMaxRanks) {
    EXPECT_THAT(
        Node::Create({.num_ranks = gpus + 1}).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat(gpus + 1, " ranks asked for, ", gpus,
                              " GPUs found; OCTET_RANKS_PER_GPU=n lets n ranks share each")));
  }
  EXPECT_THAT(Node::Create({.num_ranks = kMaxRanks + 1}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("17 ranks asked for")));
  EXPECT_EQ(Node::Create({.num_ranks = -1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NodeTest, TakesAllGpusByDefault) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const auto node = Node::Create();
  ASSERT_OK(node.status());
  EXPECT_EQ((*node)->num_ranks(), std::min(NumGpus(), kMaxRanks));
}

TEST_F(NodeTest, TimeoutComesFromTheOptionOrTheEnvironment) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const ScopedEnvironment timeout("OCTET_TIMEOUT_MS");
  EXPECT_EQ((*Node::Create({.num_ranks = 1}))->timeout(), absl::Seconds(10));
  timeout.Set("1234");
  EXPECT_EQ((*Node::Create({.num_ranks = 1}))->timeout(), absl::Milliseconds(1234));
  EXPECT_EQ((*Node::Create({.num_ranks = 1, .timeout = absl::Seconds(3)}))->timeout(),
            absl::Seconds(3));
  for (const char* bad : {"", "abc", "0", "-5", "10s"}) {
    timeout.Set(bad);
    EXPECT_THAT(Node::Create({.num_ranks = 1}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("OCTET_TIMEOUT_MS")));
  }
}

TEST_F(NodeTest, RanksMayShareAGpu) {
  const ScopedEnvironment shares("OCTET_RANKS_PER_GPU");
  const int gpus = NumGpus();
  if (gpus == 0 || gpus >= kMaxRanks) GTEST_SKIP() << gpus << " GPUs";
  shares.Set("2");
  const int ranks = std::min(2 * gpus, kMaxRanks);
  const auto node = Node::Create();
  if (absl::IsUnimplemented(node.status())) GTEST_SKIP() << node.status();
  ASSERT_OK(node.status());
  ASSERT_EQ((*node)->num_ranks(), ranks);
  EXPECT_OK((*node)->Run([&](Rank& rank) -> absl::Status {
    int device = -1;
    OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
    if (device != rank.rank() % gpus || rank.device() != device) {
      return absl::InternalError(absl::StrCat("runs on GPU ", device));
    }
    for (int i = 0; i < 10; ++i) OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
    return rank.Synchronize();
  }));
}

TEST_F(NodeTest, NodesCanFollowOneAnother) {
  for (int i = 0; i < 3; ++i) {
    MakeNode(2);
    if (IsSkipped()) return;
    EXPECT_OK(node_->Run([](Rank& rank) { return rank.Barrier(); }));
    node_.reset();
  }
}

// ---- Run without failures

TEST_F(NodeRunTest, EachRankHasItsOwnThreadAndDevice) {
  Make();
  if (IsSkipped()) return;
  std::vector<std::thread::id> threads(kRanks);
  std::vector<int> devices(kRanks, -1);
  for (int run = 0; run < 2; ++run) {
    ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      const std::thread::id before =
          std::exchange(threads[rank.rank()], std::this_thread::get_id());
      if (run == 1 && before != threads[rank.rank()]) return absl::InternalError("another thread");
      if (rank.num_ranks() != kRanks || &rank.node() != node_.get()) {
        return absl::InternalError("wrong node");
      }
      OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&devices[rank.rank()]));
      return rank.Barrier();
    }));
  }
  EXPECT_EQ(std::set<std::thread::id>(threads.begin(), threads.end()).size(), size_t{kRanks});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(devices[rank], node_->topology().gpus[rank].device);
  }
}

TEST_F(NodeRunTest, WaitsForWhatIsEnqueued) {
  Make();
  if (IsSkipped()) return;
  for (uint64_t epoch = 1; epoch <= 20; ++epoch) {
    ASSERT_OK(node_->Run([&](Rank& rank) { return ring_->Enqueue(rank, epoch); }));
  }
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const uint64_t passed, ring_->Passed(rank));
    return passed == 20 ? absl::OkStatus() : absl::DataLossError("not all have passed");
  }));
  EXPECT_EQ(ring_->recoveries(), 0);
}

TEST_F(NodeRunTest, IsNotReentrantAndNotConcurrent) {
  Make();
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank&) { return node_->Run([](Rank&) { return absl::OkStatus(); }); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(StartsWith("rank 0: "), HasSubstr("inside the body"))));
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    if (rank.rank() == 0) {
      absl::Status other;
      std::thread([&] { other = node_->Run([](Rank&) { return absl::OkStatus(); }); }).join();
      if (!absl::IsFailedPrecondition(other)) return absl::InternalError("two at once");
    }
    return rank.Barrier();
  }));
}

// ---- what outlives the node

TEST_F(NodeTest, WhatWasMadeOnANodeMayOutliveIt) {
  if (NumGpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto free_bytes = [] {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(hipMemGetInfo(&free, &total), hipSuccess);
    return free;
  };
  const size_t before = free_bytes();
  MakeNode(2);
  auto heap = SymmetricHeap::Create(*node_, 8 << 20);
  ASSERT_OK(heap.status());
  auto trace = TraceCollector::Create(*node_, 1 << 10, 1 << 10);
  ASSERT_OK(trace.status());
  const std::shared_ptr<Node> shared = node_->Share();
  EXPECT_OK(shared->Run([&](Rank& rank) {
    return rank.IsOf(*shared) && &rank.node() == node_.get() ? rank.Barrier()
                                                             : absl::InternalError("another node");
  }));
  node_.reset();
  EXPECT_THAT(
      shared->Run([](Rank&) { return absl::OkStatus(); }),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the node has been destroyed")));
  EXPECT_THAT((*trace)->Clear(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("the node has been destroyed")));
  EXPECT_EQ(shared->num_ranks(), 2);
  EXPECT_OK((*heap)->AllocateBytes(1 << 10, SymmetricHeap::kAlignment).status());
  heap->reset();
  trace->reset();
  if (shared->topology().emulated()) EXPECT_EQ(free_bytes(), before);
}

// A GPU that has faulted may stay unusable for the process: hence a process of its own.
TEST(NodeDeathTest, AFaultOfAKernelIsAnError) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        auto node = Node::Create({.num_ranks = 1});
        if (!node.ok()) {
          std::cerr << "as it should be: no GPU";
          std::exit(0);
        }
        const absl::Status status = (*node)->Run([](Rank& rank) -> absl::Status {
          OCTET_ASSIGN_OR_RETURN(DeviceMemory result, DeviceMemory::Allocate(4));
          OCTET_RETURN_IF_GPU_ERROR(
              LaunchTouch(reinterpret_cast<uint32_t*>(64), result.as<uint32_t>(), rank.stream()));
          return rank.Synchronize();
        });
        const absl::Status next = (*node)->Run([](Rank&) { return absl::OkStatus(); });
        node->reset();
        const bool good = absl::IsInternal(status) &&
                          absl::StrContains(status.message(), "rank 0: work on the rank's stream");
        std::cerr << (good ? "as it should be: " : "wrong: ") << status << "; then " << next;
        std::exit(good ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "as it should be");
}

}  // namespace
}  // namespace octet
