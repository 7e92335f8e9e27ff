#include "octet/node.h"
#include "octet/node_failure.h"
#include "runtime/node_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/symmetric_heap.h"
#include "octet/trace.h"
#include "runtime/device_memory.h"
#include "runtime/failure.h"
#include "runtime/gpu_status.h"
#include "runtime/pinned_memory.h"
#include "runtime/status_macros.h"
#include "tests/support/node_fixture.h"
#include "tests/support/node_kernels.h"
#include "tests/support/scoped_environment.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr uint32_t kRingSite = 7;
constexpr uint32_t kInputSite = 8;

// A flag for every rank on every rank, and a kernel that passes them round a ring.
class Ring : public NodeClient {
 public:
  static absl::StatusOr<std::unique_ptr<Ring>> Create(Node& node) {
    auto ring = std::unique_ptr<Ring>(new Ring(node));
    OCTET_ASSIGN_OR_RETURN(ring->heap_, SymmetricHeap::Create(node, 1 << 14));
    OCTET_ASSIGN_OR_RETURN(ring->flags_, ring->heap_->Allocate<uint64_t>(kMaxRanks));
    OCTET_ASSIGN_OR_RETURN(ring->passed_, ring->heap_->Allocate<uint64_t>(1));
    ring->id_ = NodeClient::Register(node, ring.get());
    return ring;
  }
  ~Ring() override { NodeClient::Unregister(node_, id_); }

  absl::Status Describe(int rank, const device::FailureRecord& record) const override {
    if (record.kind == device::FailureKind::kInput) {
      return WithFailure(
          RecordedFailure(rank, record, "ring", "token"),
          absl::InvalidArgumentError(absl::StrCat("site ", record.site, " refused token ",
                                                  record.index, ": value ", record.seen)));
    }
    return DeadlineStatus(
        RecordedFailure(rank, record, absl::StrCat("ring site ", record.site), "token flag"));
  }

  absl::Status Recover(Rank& rank) override {
    ++recoveries_;
    OCTET_RETURN_IF_ERROR(recover_status_);
    return OCTET_GPU(hipMemsetAsync(heap_->peers(rank.rank()).base[rank.rank()], 0,
                                    heap_->bytes_used(), rank.stream()));
  }

  // Tells the next rank, waits for the one before.
  absl::Status Enqueue(Rank& rank, uint64_t epoch, bool send = true) {
    const int n = rank.num_ranks();
    const int before = (rank.rank() + n - 1) % n;
    const device::PeerBases peers = heap_->peers(rank.rank());
    uint64_t* to = flags_.On(peers, (rank.rank() + 1) % n) + rank.rank();
    return OCTET_GPU(LaunchExchange({.port = NodeClient::PortOf(rank, id_),
                                     .site = {kRingSite, before, 100U + before},
                                     .to = send ? to : nullptr,
                                     .flag = flags_.Mine(peers) + before,
                                     .epoch = epoch,
                                     .passed = passed_.Mine(peers)},
                                    rank.stream()));
  }
  absl::Status EnqueueRefusal(Rank& rank, uint64_t value) const {
    return OCTET_GPU(LaunchRefuse(
        {.port = NodeClient::PortOf(rank, id_), .site = {kInputSite, -1, 3}, .value = value},
        rank.stream()));
  }
  // How often this rank's kernel has got past its wait. The stream must be idle.
  absl::StatusOr<uint64_t> Passed(Rank& rank) const {
    uint64_t passed = 0;
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(&passed, passed_.Mine(heap_->peers(rank.rank())),
                                        sizeof(passed), hipMemcpyDeviceToHost));
    return passed;
  }

  int recoveries() const { return recoveries_; }
  void set_recover_status(absl::Status status) { recover_status_ = std::move(status); }

 private:
  explicit Ring(Node& node) : node_(node) {}

  Node& node_;
  std::unique_ptr<SymmetricHeap> heap_;
  SymmetricPtr<uint64_t> flags_;  // [from]
  SymmetricPtr<uint64_t> passed_;
  uint32_t id_ = 0;
  std::atomic<int> recoveries_{0};
  absl::Status recover_status_;
};

class NodeRunTest : public NodeTest {
 protected:
  static constexpr int kRanks = 4;

  void Make(absl::Duration timeout = absl::Seconds(10), int num_ranks = kRanks) {
    MakeNode(num_ranks, timeout);
    if (IsSkipped()) return;
    absl::StatusOr<std::unique_ptr<Ring>> ring = Ring::Create(*node_);
    ASSERT_OK(ring.status());
    ring_ = *std::move(ring);
  }

  // One healthy exchange on all ranks, from a fresh state.
  absl::Status GoodRun(uint64_t epoch = 1) {
    return node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, epoch); }));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_ASSIGN_OR_RETURN(const uint64_t passed, ring_->Passed(rank));
      if (passed != epoch) return absl::DataLossError(absl::StrCat("passed ", passed, " times"));
      return absl::OkStatus();
    });
  }

  // On a rank's thread that is to be stuck until a failure is told, or for good.
  void WaitForNote() const {
    const absl::Time latest = absl::Now() + absl::Seconds(60);
    while (Noted().empty() && absl::Now() < latest) absl::SleepFor(absl::Milliseconds(1));
  }

  std::unique_ptr<Ring> ring_;  // gone before the node
};

// ---- creation

TEST_F(NodeTest, NamesHowManyGpusThereAre) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const int gpus = std::min(NumGpus(), kMaxRanks - 1);
  if (NumGpus() < kMaxRanks) {
    EXPECT_THAT(Node::Create({.num_ranks = gpus + 1}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat(gpus + 1, " ranks asked for, ", gpus, " GPUs found")));
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

// ---- failures of bodies

TEST_F(NodeRunTest, AFailedBodyReleasesBarriers) {
  Make();
  if (IsSkipped()) return;
  std::vector<absl::Status> seen(kRanks);
  const absl::Time start = absl::Now();
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 2) {
      absl::SleepFor(absl::Milliseconds(20));
      return absl::NotFoundError("no such file");
    }
    return seen[rank.rank()] = rank.Barrier();
  }),
              StatusIs(absl::StatusCode::kNotFound, "rank 2: no such file"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(seen[rank],
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("rank 2: no such file")));
  }
  EXPECT_EQ(ring_->recoveries(), kRanks);
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AFailedBodyReleasesWaitsOnTheGpu) {
  Make(absl::Seconds(60));
  if (IsSkipped()) return;
  std::vector<absl::Status> seen(kRanks);
  const absl::Time start = absl::Now();
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    if (rank.rank() == 1) {
      absl::SleepFor(absl::Milliseconds(50));
      return absl::DataLossError("out of tokens");
    }
    OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 1));
    if (rank.rank() == 3) return absl::OkStatus();  // waits only in Run's end
    return seen[rank.rank()] = rank.Synchronize();
  }),
              StatusIs(absl::StatusCode::kDataLoss, "rank 1: out of tokens"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_THAT(seen[2], StatusIs(absl::StatusCode::kCancelled, HasSubstr("released")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, ACallThatFailsIsNamedWithItsRank) {
  Make();
  if (IsSkipped()) return;
  EXPECT_THAT(
      node_->Run([&](Rank& rank) -> absl::Status {
        OCTET_RETURN_IF_ERROR(rank.Barrier());
        if (rank.rank() == 3) OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(9999));
        return rank.Barrier();
      }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("rank 3: hipSetDevice(9999): "),
                     HasSubstr(absl::StrCat("(device ", node_->topology().gpus[3].device, ")")))));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, WhatAllRanksSayIsSaidByTheFirst) {
  Make();
  if (IsSkipped()) return;
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(node_->Run([](Rank&) { return absl::InvalidArgumentError("bad hidden size"); }),
                StatusIs(absl::StatusCode::kInvalidArgument, "rank 0: bad hidden size"));
  }
}

TEST_F(NodeRunTest, ARankThatLeavesEarlyIsNamed) {
  Make();
  if (IsSkipped()) return;
  const absl::Time start = absl::Now();
  EXPECT_THAT(node_->Run([](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    return rank.rank() == 1 ? absl::OkStatus() : rank.Barrier();
  }),
              StatusIs(absl::StatusCode::kAborted,
                       MatchesRegex("rank [023]: host barrier: rank 1 has left Run")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, ARankThatIsLateForABarrierIsNamed) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  // The late one waits for the others to give up, which on a busy machine takes its time.
  std::atomic<int> gave_up{0};
  const absl::Time latest = absl::Now() + absl::Seconds(60);
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    while (rank.rank() == 2 && gave_up < kRanks - 1 && absl::Now() < latest) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    const absl::Status status = rank.Barrier();
    ++gave_up;
    return status;
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank [013]: host barrier waited .* ms for rank 2")));
  EXPECT_OK(node_->Run([](Rank& rank) { return rank.Barrier(); }));
}

// ---- failures of kernels

TEST_F(NodeRunTest, AnExpiredWaitSaysWhoWaitedForWhat) {
  Make(absl::Milliseconds(300));
  if (IsSkipped()) return;
  std::vector<absl::Status> seen(kRanks);
  const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, 3, rank.rank() != 1); }));
    return seen[rank.rank()] = rank.Synchronize();
  });
  // Of the ring only rank 2 waits for somebody who has not sent.
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               MatchesRegex("rank 2: ring site 7 waited [0-9.]+ m?s for rank 1's "
                                            "token flag 101: expected epoch 3, seen 0\n"
                                            "all ranks:\n"
                                            "  rank 0: no wait\n"
                                            "  rank 1: (no wait|ring site 7 [^\n]*)\n"
                                            "  rank 2: ring site 7 [^\n]*\n"
                                            "  rank 3: (no wait|ring site 7 [^\n]*)")));
  EXPECT_THAT(std::string(status.message()), StartsWith(std::string(seen[2].message()) + "\n"));
  EXPECT_EQ(ring_->recoveries(), kRanks);
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AnExpiredWaitIsReportedByABodyThatDoesNotSynchronize) {
  Make(absl::Milliseconds(200));
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) { return ring_->Enqueue(rank, 1, rank.rank() != 0); }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, StartsWith("rank 1: ring site 7")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, TheStatusOfARunCarriesTheFailure) {
  Make(absl::Milliseconds(200));
  if (IsSkipped()) return;
  const auto expire = [&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 1, rank.rank() != 0));
    return rank.Synchronize();  // the other ranks return rank 1's failure as well
  };
  const std::optional<NodeFailure> wait = FailureOf(node_->Run(expire));
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->kind, NodeFailure::Kind::kWait);
  EXPECT_EQ(wait->rank, 1);
  EXPECT_EQ(wait->peer, 0);
  EXPECT_GE(wait->waited, absl::Milliseconds(200));

  const std::optional<NodeFailure> refusal = FailureOf(node_->Run([&](Rank& rank) {
    return rank.rank() == 3 ? ring_->EnqueueRefusal(rank, 4711) : absl::OkStatus();
  }));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, NodeFailure::Kind::kInput);
  EXPECT_EQ(refusal->rank, 3);
  EXPECT_EQ(refusal->seen, 4711U);

  const std::optional<NodeFailure> late = FailureOf(node_->Run(
      [](Rank& rank) { return rank.rank() == 2 ? absl::OkStatus() : rank.Barrier("the step"); }));
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->peer, 2);
  EXPECT_EQ(late->phase, "host barrier before the step");
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AnExpiredWaitIsNotHiddenByWhatTheBodyMakesOfIt) {
  Make(absl::Milliseconds(200));
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, 1, rank.rank() != 0); }));
    return rank.Synchronize().ok() ? absl::OkStatus() : absl::UnknownError("layer 7 failed");
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, StartsWith("rank 1: ring site 7")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, RefusedInputReleasesTheOthers) {
  Make(absl::Seconds(60));
  if (IsSkipped()) return;
  const absl::Time start = absl::Now();
  EXPECT_THAT(
      node_->Run([&](Rank& rank) -> absl::Status {
        OCTET_RETURN_IF_ERROR(rank.Barrier());
        if (rank.rank() == 0) return ring_->EnqueueRefusal(rank, 4711);
        return ring_->Enqueue(rank, 1);
      }),
      StatusIs(absl::StatusCode::kInvalidArgument, "rank 0: site 8 refused token 3: value 4711"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, RefusedInputComesBeforeAnExpiredWait) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() != 3) return ring_->Enqueue(rank, 1);
    absl::SleepFor(absl::Milliseconds(500));
    return ring_->EnqueueRefusal(rank, 1);
  }),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("rank 3: ")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AKernelOfNobodyIsStillReported) {
  Make(absl::Milliseconds(100), 1);
  if (IsSkipped()) return;
  DeviceMemory flag;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(flag, DeviceMemory::Allocate(2 * sizeof(uint64_t)));
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(flag.as<void>(), 0, flag.bytes(), rank.stream()));
    return OCTET_GPU(LaunchExchange({.port = NodeClient::PortOf(rank, 999),
                                     .site = {5, -1, 2},
                                     .to = nullptr,
                                     .flag = flag.as<uint64_t>(),
                                     .epoch = 1,
                                     .passed = flag.as<uint64_t>() + 1},
                                    rank.stream()));
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       StartsWith("rank 0: site 5 of client 999 waited ")));
}

// Every cause in turn, each followed by a Run that works.
TEST_F(NodeRunTest, RecoversFiftyTimes) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  for (int i = 0; i < 50; ++i) {
    const int culprit = i % kRanks;
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      const bool fails = rank.rank() == culprit;
      OCTET_RETURN_IF_ERROR(rank.Barrier());
      switch (i % 4) {
        case 0:
          if (fails) return absl::InternalError("own error");
          OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 2));
          return rank.Synchronize();
        case 1:
          OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 2, !fails));
          return rank.Synchronize();
        case 2:
          return fails ? ring_->EnqueueRefusal(rank, i) : ring_->Enqueue(rank, 2);
        default:
          return fails ? absl::OkStatus() : rank.Barrier();
      }
    });
    constexpr absl::StatusCode kExpected[] = {
        absl::StatusCode::kInternal, absl::StatusCode::kDeadlineExceeded,
        absl::StatusCode::kInvalidArgument, absl::StatusCode::kAborted};
    ASSERT_EQ(status.code(), kExpected[i % 4]) << i << ": " << status;
    ASSERT_EQ(ring_->recoveries(), kRanks * (i + 1));
    ASSERT_OK(GoodRun()) << i;
  }
}

TEST_F(NodeRunTest, AFailedRecoveryIsRemembered) {
  Make();
  if (IsSkipped()) return;
  ring_->set_recover_status(absl::ResourceExhaustedError("no way back"));
  EXPECT_THAT(node_->Run([](Rank&) { return absl::InternalError("first"); }),
              StatusIs(absl::StatusCode::kInternal, "rank 0: first"));
  EXPECT_THAT(node_->Run([](Rank&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0: first"), HasSubstr("rank 0: no way back"))));
}

TEST_F(NodeRunTest, SynchronizeGivesUpOnAKernelThatDoesNotEnd) {
  Make(absl::Milliseconds(10), 2);
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 0) return absl::OkStatus();
    uint32_t* word = nullptr;
    OCTET_RETURN_IF_GPU_ERROR(hipHostMalloc(reinterpret_cast<void**>(&word), sizeof(*word),
                                            hipHostMallocPortable | hipHostMallocMapped));
    *word = 0;
    OCTET_RETURN_IF_GPU_ERROR(LaunchStubborn(word, rank.stream()));
    absl::Status status = rank.Synchronize();
    std::atomic_ref<uint32_t>(*word).store(1);
    (void)rank.Synchronize();
    OCTET_RETURN_IF_GPU_ERROR(hipHostFree(word));
    return status;
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank 1: the stream is not idle after 5\\.[0-9] s")));
  EXPECT_OK(node_->Run([](Rank& rank) { return rank.Barrier(); }));
}

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
  const std::optional<NodeFailure> failure = FailureOf(noted[0]);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind, NodeFailure::Kind::kWait);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->peer, 1);
  EXPECT_EQ(failure->expected, 1U);
  EXPECT_EQ(failure->seen, 0U);
  EXPECT_EQ(failure->phase, "ring site 7");
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
  EXPECT_THAT(shared->Run([](Rank&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, "the node has been destroyed"));
  EXPECT_THAT((*trace)->Clear(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "the node has been destroyed"));
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
