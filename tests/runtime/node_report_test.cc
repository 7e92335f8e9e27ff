// When a failure is told, and what the node does about work that does not end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "octet/node_failure.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/pinned_memory.h"
#include "tests/runtime/node_run_fixture.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// ---- what is told, and when

TEST_F(NodeRunTest, AFailureIsToldWhileTheThreadOfARankIsStuck) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  std::vector<absl::Status> noted;  // before the body of rank 0, and so Run, has come back
  const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 0) {
      WaitForNote();
      noted = Noted();
      return absl::OkStatus();
    }
    return rank.Barrier("step 3");
  });
  ASSERT_EQ(noted.size(), 1U);
  EXPECT_THAT(
      noted[0],
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               MatchesRegex("rank [123]: host barrier before step 3 waited .* for rank 0")));
  EXPECT_EQ(status, noted[0]);
  EXPECT_OK(GoodRun());
  EXPECT_EQ(Noted().size(), 1U);
}

// Nobody polls any more: the bodies of the other ranks have come back, and their streams are idle.
TEST_F(NodeRunTest, AnExpiredWaitIsToldWhileTheThreadOfItsRankIsStuck) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  std::vector<absl::Status> noted;
  EXPECT_EQ(node_
                ->Run([&](Rank& rank) -> absl::Status {
                  OCTET_RETURN_IF_ERROR(rank.Barrier());
                  if (rank.rank() != 2) return ring_->Enqueue(rank, 1, rank.rank() != 1);
                  OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 1));
                  WaitForNote();
                  noted = Noted();
                  return absl::OkStatus();
                })
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(noted.size(), 1U);
  EXPECT_THAT(noted[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded, StartsWith("rank 2: ring site 7")));
  const NodeFailure failure = FailureOf(noted[0]).value_or(NodeFailure{});
  EXPECT_EQ(failure.kind, NodeFailure::Kind::kWait);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.peer, 1);
  EXPECT_EQ(failure.expected, 1U);
  EXPECT_EQ(failure.seen, 0U);
  EXPECT_EQ(failure.phase, "ring site 7");
  EXPECT_EQ(Noted().size(), 1U);
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, EachFailedRunIsToldOnce) {
  Make();
  if (IsSkipped()) return;
  for (size_t i = 1; i <= 20; ++i) {
    EXPECT_FALSE(node_
                     ->Run([&](Rank& rank) -> absl::Status {
                       if (rank.rank() == 1) return absl::NotFoundError(absl::StrCat("file ", i));
                       return rank.Barrier();
                     })
                     .ok());
    ASSERT_EQ(Noted().size(), i);
    // The others' errors are its consequences.
    EXPECT_THAT(Noted().back(),
                StatusIs(absl::StatusCode::kNotFound, absl::StrCat("rank 1: file ", i)));
    EXPECT_OK(GoodRun());
  }
  EXPECT_EQ(Noted().size(), 20U);
}

TEST_F(NodeTest, FailuresGoToStandardErrorUnlessSilenced) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const auto fail = [](const NodeOptions& options) {
    ::testing::internal::CaptureStderr();
    auto node = Node::Create(options);
    EXPECT_OK(node.status());
    EXPECT_FALSE((*node)->Run([](Rank&) { return absl::NotFoundError("no file\nline 2"); }).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(fail({.num_ranks = 1}), "octet: rank 0: no file\n");
  EXPECT_EQ(fail({.num_ranks = 1, .on_failure = nullptr}), "");
}

// ---- streams with other work

TEST_F(NodeRunTest, ARankWhoseStreamIsBusyWithOtherWorkIsNamed) {
  Make(absl::Milliseconds(200));
  if (IsSkipped()) return;
  const auto word = PinnedMemory::Allocate(sizeof(uint32_t));
  ASSERT_OK(word.status());
  auto* stop = word->as<uint32_t>();
  *stop = 0;
  // Rank 1 sends its flag behind a kernel that ends long after rank 2 has given up.
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) OCTET_RETURN_IF_GPU_ERROR(LaunchStubborn(stop, rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, 1); }));
    if (rank.rank() == 0) {
      WaitForNote();
      absl::SleepFor(absl::Seconds(1));
      std::atomic_ref<uint32_t>(*stop).store(1);
    }
    return rank.Synchronize();
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank 2: ring site 7 waited [^\n]* for rank 1's [^\n]*\n"
                                    "all ranks:\n"
                                    "  rank 0: [^\n]*\n"
                                    "  rank 1: [^\n]*; its stream was busy with other work until "
                                    "[^\n]* after the failure\n"
                                    "  rank 2: [^\n]*\n"
                                    "  rank 3: [^\n]*")));
  EXPECT_OK(GoodRun());
}

// The node comes to know of it when memory is to be freed.
TEST_F(NodeTest, MemoryIsLeftWhenAKernelOfTheCallerDoesNotEnd) {
  MakeNode(2, absl::Milliseconds(10));
  if (IsSkipped()) return;
  auto heap = SymmetricHeap::Create(*node_, 1 << 10);
  ASSERT_OK(heap.status());
  auto other = SymmetricHeap::Create(*node_, 1 << 10);
  ASSERT_OK(other.status());
  void* memory = nullptr;
  ASSERT_EQ(hipHostMalloc(&memory, sizeof(uint32_t), hipHostMallocPortable | hipHostMallocMapped),
            hipSuccess);
  auto* stop = static_cast<uint32_t*>(memory);
  *stop = 0;
  ASSERT_EQ(LaunchStubborn(stop, nullptr), hipSuccess);
  EXPECT_FALSE(node_->stuck());
  heap->reset();
  EXPECT_TRUE(node_->stuck());
  ASSERT_EQ(Noted().size(), 1U);
  EXPECT_THAT(Noted()[0], StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("unfreed")));
  other->reset();
  node_.reset();
  EXPECT_EQ(Noted().size(), 1U);
  std::atomic_ref<uint32_t>(*stop).store(1);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(hipHostFree(memory), hipSuccess);
}

}  // namespace
}  // namespace octet
