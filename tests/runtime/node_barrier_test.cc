// The barrier of a node's GPUs among one another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"

namespace octet {
namespace {

using ::testing::MatchesRegex;

class NodeBarrierTest : public NodeTest {
 protected:
  void Make(int num_ranks, absl::Duration timeout) {
    MakeNode(num_ranks, timeout);
    if (IsSkipped()) return;
    auto heap = SymmetricHeap::Create(*node_, 1 << 14);
    ASSERT_OK(heap.status());
    heap_ = *std::move(heap);
    words_ = *heap_->Allocate<uint64_t>(kMaxRanks);
    wrong_ = *heap_->Allocate<uint64_t>(1);
  }

  // Every rank writes `value` to all ranks between two barriers, and looks at what all have written
  // to it after the second.
  absl::Status EnqueueRound(Rank& rank, uint64_t value) {
    const device::PeerBases peers = heap_->peers(rank.rank());
    WordsParams params = {};
    params.count = rank.num_ranks();
    params.value = value;
    params.wrong = wrong_.Mine(peers);
    for (int peer = 0; peer < rank.num_ranks(); ++peer) {
      params.words[peer] = words_.On(peers, peer) + rank.rank();
    }
    OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
    OCTET_RETURN_IF_GPU_ERROR(LaunchStoreWords(params, rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
    for (int peer = 0; peer < rank.num_ranks(); ++peer) {
      params.words[peer] = words_.Mine(peers) + peer;
    }
    return OCTET_GPU(LaunchCheckWords(params, rank.stream()));
  }
  absl::Status CheckNoneWrong(Rank& rank) const {
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    uint64_t wrong = 0;
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(&wrong, wrong_.Mine(heap_->peers(rank.rank())),
                                        sizeof(wrong), hipMemcpyDeviceToHost));
    return wrong == 0 ? absl::OkStatus() : absl::DataLossError(absl::StrCat(wrong, " words wrong"));
  }

  std::unique_ptr<SymmetricHeap> heap_;
  SymmetricPtr<uint64_t> words_;  // [from]
  SymmetricPtr<uint64_t> wrong_;
};

TEST_F(NodeBarrierTest, OrdersTheGpus) {
  for (const int num_ranks : {1, 2, 5, 8}) {
    if (num_ranks > NumGpus()) continue;
    Make(num_ranks, absl::Seconds(10));
    for (int run = 0; run < 3; ++run) {
      EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
        for (uint64_t round = 1; round <= 10; ++round) {
          OCTET_RETURN_IF_ERROR(EnqueueRound(rank, 100 * run + round));
        }
        return CheckNoneWrong(rank);
      }));
    }
    heap_.reset();
    node_.reset();
  }
}

TEST_F(NodeBarrierTest, NamesTheRankThatDoesNotCome) {
  Make(3, absl::Milliseconds(200));
  if (IsSkipped()) return;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(node_->Run([](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
      return rank.rank() == 2 ? absl::OkStatus() : rank.EnqueueNodeBarrier();
    }),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         MatchesRegex("rank [01]: node barrier waited .* for rank 2's arrival at "
                                      "rank [01]: expected epoch "
                                      "(2, seen 1|4, seen 3)\n(.|\n)*  rank 2: no wait")));
    EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(EnqueueRound(rank, 1000 + i));
      return CheckNoneWrong(rank);
    })) << "the rounds begin afresh on all ranks";
  }
}

}  // namespace
}  // namespace octet
