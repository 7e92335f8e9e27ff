// Calls of ranks from threads, and on streams, that are not the node's: Node::Adopt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/dtype.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "octet/node.h"
#include "octet/node_failure.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kAdoptedRanks = 3;
constexpr int kHidden = 64;

MATCHER(Succeeds, "") {
  *result_listener << arg.ToString();
  return arg.ok();
}

using Body = std::function<absl::Status(Rank&)>;

// A token of each rank, all of whose elements are its number, and the memory of a call.
struct Buffers {
  DeviceMemory x, ids, y;
};

class AdoptedNodeTest : public NodeTest {
 protected:
  void SetUp() override { Adopt({0, 1, 2}); }

  void TearDown() override {
    ep_.reset();
    if (node_ != nullptr) EXPECT_OK(node_->Settle());
    for (const auto& streams : streams_) {
      for (const GpuStream stream : streams) EXPECT_OK(OCTET_GPU(hipStreamDestroy(stream)));
    }
  }

  void Adopt(const std::vector<int>& devices, absl::Duration timeout = absl::Seconds(10)) {
    if (NumGpus() < kAdoptedRanks) {
      GTEST_SKIP() << kAdoptedRanks << " ranks on " << NumGpus() << " GPUs";
    }
    node_.reset();
    absl::StatusOr<std::unique_ptr<Node>> node = Node::Adopt(
        devices, {.timeout = timeout, .on_failure = [this](const absl::Status&) { ++noticed_; }});
    ASSERT_OK(node.status());
    node_ = *std::move(node);
    for (int rank = 0; rank < kAdoptedRanks; ++rank) {
      for (GpuStream& stream : streams_[Index(rank)]) {
        if (stream != nullptr) continue;
        ASSERT_OK(OCTET_GPU(hipSetDevice(rank)));
        ASSERT_OK(OCTET_GPU(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking)));
      }
    }
    ASSERT_OK(OCTET_GPU(hipSetDevice(0)));
  }

  void MakeEp() {
    EpConfig config;
    config.num_experts = kAdoptedRanks;
    config.topk = 1;
    config.hidden = kHidden;
    config.max_tokens_per_rank = 2;
    auto ep = ExpertParallel::Create(*node_, config);
    ASSERT_OK(ep.status());
    ep_ = *std::move(ep);
    ASSERT_OK(node_->Run([&](Rank& rank) { return MakeBuffers(rank); }));
  }

  // Its token chooses the next rank's expert.
  absl::Status MakeBuffers(Rank& rank) {
    Buffers& mine = buffers_[Index(rank.rank())];
    constexpr size_t kBytes = kHidden * sizeof(uint16_t);
    OCTET_ASSIGN_OR_RETURN(mine.x, DeviceMemory::Allocate(kBytes));
    OCTET_ASSIGN_OR_RETURN(mine.y, DeviceMemory::Allocate(kBytes));
    OCTET_ASSIGN_OR_RETURN(mine.ids, DeviceMemory::Allocate(sizeof(int32_t)));
    OCTET_RETURN_IF_ERROR(
        ToDevice(mine.ids, std::vector<int32_t>{(rank.rank() + 1) % kAdoptedRanks}));
    return ToDevice(mine.x, std::vector<uint16_t>(kHidden, BitsOf(rank.rank())));
  }
  static uint16_t BitsOf(int rank) {
    return BitsFromFloat(DType::kBFloat16, 1.0F + static_cast<float>(rank));
  }

  // A step whose experts return the rows as they are: y = x.
  absl::Status Step(Rank& rank) {
    const Buffers& mine = buffers_[Index(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(
        const Received received,
        ep_->Dispatch(
            rank, {.x = mine.x.as<void>(), .topk_idx = mine.ids.as<int32_t>(), .num_tokens = 1}));
    return ep_->Combine(rank, received.handle, {.expert_out = received.x, .y = mine.y.as<void>()});
  }

  void ForgetResults() {
    ASSERT_OK(node_->Run([&](Rank& rank) {
      return ToDevice(buffers_[Index(rank.rank())].y, std::vector<uint16_t>(kHidden, 0));
    }));
  }
  void ExpectResults() {
    ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(const std::vector<uint16_t> y,
                             ToHost<uint16_t>(buffers_[Index(rank.rank())].y.as<void>(), kHidden));
      EXPECT_THAT(y, Each(BitsOf(rank.rank()))) << "rank " << rank.rank();
      return absl::OkStatus();
    }));
  }

  // Calls `body` for each rank on a new thread, on its stream number `which`.
  std::vector<absl::Status> CallAll(const Body& body, size_t which = 0) {
    std::vector<absl::Status> statuses(kAdoptedRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kAdoptedRanks; ++rank) {
      threads.emplace_back([this, rank, which, &body, &statuses] {
        statuses[Index(rank)] = node_->Call(rank, streams_[Index(rank)][which], body);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  static size_t Index(int rank) { return static_cast<size_t>(rank); }

  std::unique_ptr<ExpertParallel> ep_;
  std::array<Buffers, kAdoptedRanks> buffers_;
  std::array<std::array<GpuStream, 2>, kAdoptedRanks> streams_ = {};
  std::atomic<int> noticed_{0};
};

TEST_F(AdoptedNodeTest, CallsComeFromAnyThreadAndUseTheCallersStream) {
  if (IsSkipped()) return;
  MakeEp();
  for (const size_t which : {0, 1, 0}) {
    ForgetResults();
    const Body body = [&](Rank& rank) -> absl::Status {
      EXPECT_EQ(rank.stream(), streams_[Index(rank.rank())][which]);
      int device = -1;
      EXPECT_EQ(hipGetDevice(&device), hipSuccess);
      EXPECT_EQ(device, rank.device());
      return Step(rank);
    };
    for (int step = 0; step < 3; ++step) EXPECT_THAT(CallAll(body, which), Each(Succeeds()));
    EXPECT_OK(node_->Settle());
    ExpectResults();
  }
  EXPECT_EQ(noticed_, 0);
}

TEST_F(AdoptedNodeTest, RunSettlesFirst) {
  if (IsSkipped()) return;
  MakeEp();
  ForgetResults();
  const uint64_t before = node_->completed_runs();
  EXPECT_THAT(CallAll([&](Rank& rank) { return Step(rank); }), Each(Succeeds()));
  EXPECT_EQ(node_->completed_runs(), before);
  ExpectResults();  // by a Run
  EXPECT_EQ(node_->completed_runs(), before + 2);
  EXPECT_OK(node_->Settle());
  EXPECT_EQ(node_->completed_runs(), before + 2);
}

TEST_F(AdoptedNodeTest, HandlesAreValuesThatOutliveACall) {
  if (IsSkipped()) return;
  MakeEp();
  ForgetResults();
  std::array<DispatchHandle, kAdoptedRanks> sent;
  EXPECT_THAT(CallAll([&](Rank& rank) -> absl::Status {
                const Buffers& mine = buffers_[Index(rank.rank())];
                OCTET_ASSIGN_OR_RETURN(sent[Index(rank.rank())],
                                       ep_->DispatchSend(rank, {.x = mine.x.as<void>(),
                                                                .topk_idx = mine.ids.as<int32_t>(),
                                                                .num_tokens = 1}));
                return absl::OkStatus();
              }),
              Each(Succeeds()));
  const std::array<DispatchHandle, kAdoptedRanks> copies = sent;
  EXPECT_THAT(CallAll([&](Rank& rank) -> absl::Status {
                OCTET_ASSIGN_OR_RETURN(const Received received,
                                       ep_->DispatchReceive(rank, copies[Index(rank.rank())]));
                return ep_->Combine(
                    rank, received.handle,
                    {.expert_out = received.x, .y = buffers_[Index(rank.rank())].y.as<void>()});
              }),
              Each(Succeeds()));
  ExpectResults();
}

TEST_F(AdoptedNodeTest, GraphsOnTheCallersStreams) {
  if (IsSkipped()) return;
  MakeEp();
  std::array<std::unique_ptr<Graph>, kAdoptedRanks> graphs;
  EXPECT_THAT(CallAll([&](Rank& rank) -> absl::Status {
                OCTET_ASSIGN_OR_RETURN(Graph graph,
                                       Graph::Capture(rank, [&] { return Step(rank); }));
                graphs[Index(rank.rank())] = std::make_unique<Graph>(std::move(graph));
                return absl::OkStatus();
              }),
              Each(Succeeds()));
  ForgetResults();
  for (int replay = 0; replay < 3; ++replay) {
    EXPECT_THAT(CallAll([&](Rank& rank) { return graphs[Index(rank.rank())]->Launch(rank); }),
                Each(Succeeds()));
  }
  ExpectResults();
}

TEST_F(AdoptedNodeTest, TheRanksAreTheDevicesThatAreNamed) {
  if (IsSkipped()) return;
  Adopt({2, 0, 1});
  std::vector<int> devices(kAdoptedRanks);
  EXPECT_OK(node_->Run([&](Rank& rank) {
    devices[Index(rank.rank())] = rank.device();
    return absl::OkStatus();
  }));
  EXPECT_THAT(devices, ElementsAre(2, 0, 1));
}

TEST_F(AdoptedNodeTest, DevicesThatThereAreNotAreRefused) {
  if (IsSkipped()) return;
  EXPECT_THAT(Node::Adopt({}).status(), StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(Node::Adopt({0, 999}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("device 999 is none of")));
  EXPECT_THAT(Node::Adopt({0, 0}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more often")));
  EXPECT_THAT(Node::Adopt({0, 1}, {.num_ranks = 3}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_ranks 3")));
}

TEST_F(AdoptedNodeTest, CallsThatCannotBeMadeAreRefused) {
  if (IsSkipped()) return;
  const Body nothing = [](Rank&) { return absl::OkStatus(); };
  EXPECT_THAT(node_->Call(kAdoptedRanks, nullptr, nothing),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 3 is none")));
  EXPECT_OK(node_->Call(0, streams_[0][0], [&](Rank&) {
    EXPECT_THAT(node_->Call(1, streams_[1][0], nothing),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("rank 1 on a thread that is in a call of rank 0"),
                               HasSubstr("would wait for ever"))));
    absl::Status other;
    std::thread([&] { other = node_->Call(0, streams_[0][0], nothing); }).join();
    EXPECT_THAT(other, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("in a call on another thread")));
    EXPECT_THAT(node_->Settle(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 0 is in a call")));
    EXPECT_THAT(node_->Run(nothing),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 0 is in a call")));
    return absl::OkStatus();
  }));
  EXPECT_OK(node_->Run([&](Rank&) {
    EXPECT_THAT(node_->Call(0, streams_[0][0], nothing),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("inside the body")));
    EXPECT_THAT(node_->Settle(), StatusIs(absl::StatusCode::kFailedPrecondition, _));
    return absl::OkStatus();
  }));
  const auto other = Node::Create({.num_ranks = 1});
  ASSERT_OK(other.status());
  EXPECT_THAT((*other)->Call(0, nullptr, nothing),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Node::Adopt")));
  EXPECT_THAT((*other)->Settle(), StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

TEST_F(AdoptedNodeTest, OneThreadForAllRanksIsToldWhatIsWrong) {
  if (IsSkipped()) return;
  Adopt({0, 1, 2}, absl::Milliseconds(50));
  const absl::Status status =
      node_->Call(0, streams_[0][0], [](Rank& rank) { return rank.Barrier("a step"); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr("host barrier before a step"),
                                     HasSubstr("no thread is in a call of rank 1"),
                                     HasSubstr("each needs a thread of its own"))));
  EXPECT_THAT(node_->Call(1, streams_[1][0], [](Rank& rank) { return rank.Barrier("a step"); }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("Node::Settle")));
  EXPECT_THAT(node_->Settle(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("each needs a thread")));
  EXPECT_THAT(CallAll([](Rank& rank) { return rank.Barrier(); }), Each(Succeeds()));
}

TEST_F(AdoptedNodeTest, AnErrorOfOneRankReleasesTheOthers) {
  if (IsSkipped()) return;
  MakeEp();
  const std::vector<absl::Status> statuses = CallAll([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return absl::DataLossError("my own error");
    return Step(rank);
  });
  EXPECT_THAT(statuses, SizeIs(kAdoptedRanks));
  EXPECT_THAT(statuses, Each(Not(Succeeds())));
  EXPECT_EQ(noticed_, 1);
  EXPECT_THAT(node_->Settle(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank 1: my own error")));
  ForgetResults();
  EXPECT_THAT(CallAll([&](Rank& rank) { return Step(rank); }), Each(Succeeds()));
  ExpectResults();
}

TEST_F(AdoptedNodeTest, AWaitOnAGpuThatExpires) {
  if (IsSkipped()) return;
  Adopt({0, 1, 2}, absl::Milliseconds(50));
  const Body late = [](Rank& rank) {
    return rank.rank() == 2 ? absl::OkStatus() : rank.EnqueueNodeBarrier();
  };
  EXPECT_THAT(CallAll(late), Each(Succeeds()));  // which do not wait
  const absl::Status status = node_->Settle();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr("node barrier"), HasSubstr("rank 2"),
                                     HasSubstr("all ranks:"))));
  EXPECT_EQ(FailureOf(status).value_or(NodeFailure()).peer, 2);
  EXPECT_THAT(CallAll([](Rank& rank) -> absl::Status {
                OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
                return rank.Synchronize();
              }),
              Each(Succeeds()));
}

TEST_F(AdoptedNodeTest, WhatAKernelRefusesIsReportedByALaterCall) {
  if (IsSkipped()) return;
  MakeEp();
  ASSERT_OK(node_->Run([&](Rank& rank) {
    if (rank.rank() != 0) return absl::OkStatus();
    return ToDevice(buffers_[0].ids, std::vector<int32_t>{kAdoptedRanks + 4});
  }));
  EXPECT_THAT(CallAll([&](Rank& rank) { return Step(rank); }), Each(Succeeds()));
  EXPECT_THAT(CallAll([&](Rank& rank) -> absl::Status {
                OCTET_RETURN_IF_ERROR(rank.Synchronize());
                return Step(rank);
              }),
              Each(Not(Succeeds())));
  EXPECT_THAT(node_->Settle(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 0: ")));
}

TEST_F(AdoptedNodeTest, WhatADestructorFindsIsReportedByTheNextCall) {
  if (IsSkipped()) return;
  MakeEp();
  EXPECT_THAT(
      node_->Call(1, streams_[1][0], [](Rank&) { return absl::DataLossError("my own error"); }),
      StatusIs(absl::StatusCode::kDataLoss, _));
  ep_.reset();
  EXPECT_THAT(node_->Call(0, streams_[0][0], [](Rank&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("my own error"), HasSubstr("Node::Settle"))));
  EXPECT_THAT(node_->Settle(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("my own error")));
  EXPECT_OK(node_->Call(0, streams_[0][0], [](Rank&) { return absl::OkStatus(); }));
}

}  // namespace
}  // namespace octet
