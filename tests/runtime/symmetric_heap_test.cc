#include "octet/symmetric_heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/runtime/symmetric_heap_kernels.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SymmetricHeapTest : public NodeTest {
 protected:
  void Make(int num_ranks, size_t bytes) {
    MakeNode(num_ranks);
    if (IsSkipped()) return;
    absl::StatusOr<std::unique_ptr<SymmetricHeap>> heap = SymmetricHeap::Create(*node_, bytes);
    ASSERT_OK(heap.status());
    heap_ = *std::move(heap);
  }

  std::unique_ptr<SymmetricHeap> heap_;  // gone before the node
};

TEST_F(SymmetricHeapTest, AllocationsFollowOneAnother) {
  Make(2, 10'000);
  if (IsSkipped()) return;
  EXPECT_EQ(heap_->bytes(), 10'240U);
  EXPECT_EQ(heap_->Allocate<uint32_t>(1)->offset, 0U);
  EXPECT_EQ(heap_->Allocate<uint64_t>(100)->offset, 256U);
  EXPECT_EQ(heap_->bytes_used(), 256U + 800U);
  EXPECT_EQ(heap_->Allocate<char>(1, 1)->offset, 1280U) << "at least kAlignment";
  EXPECT_EQ(heap_->Allocate<char>(0)->offset, 1536U);
}

TEST_F(SymmetricHeapTest, ExhaustionSaysWhatIsNeededAndLeft) {
  Make(2, 4096);
  if (IsSkipped()) return;
  ASSERT_OK(heap_->AllocateBytes(1000, 256).status());
  EXPECT_THAT(heap_->Allocate<uint32_t>(1000).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("4000 bytes"), HasSubstr("3096 of 4096 left"))));
  EXPECT_EQ(heap_->bytes_used(), 1000U) << "a refused allocation takes nothing";
  EXPECT_OK(heap_->AllocateBytes(3072, 256).status()) << "exactly what is left";
  EXPECT_EQ(heap_->Allocate<char>(1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SymmetricHeapTest, HugeCountsDoNotWrap) {
  Make(1, 4096);
  if (IsSkipped()) return;
  const size_t huge = std::numeric_limits<size_t>::max() / 4 + 2;
  EXPECT_EQ(heap_->Allocate<uint32_t>(huge).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(SymmetricHeap::Create(*node_, std::numeric_limits<size_t>::max()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SymmetricHeap::Create(*node_, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SymmetricHeapTest, Alignment) {
  Make(1, 4096);
  if (IsSkipped()) return;
  EXPECT_THAT(heap_->AllocateBytes(1, 3).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 is not a power of two")));
  EXPECT_EQ(heap_->AllocateBytes(1, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(heap_->AllocateBytes(1, size_t{1} << 62).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SymmetricHeapTest, MoreThanTheGpuHas) {
  MakeNode(2);
  if (IsSkipped()) return;
  // Of a GPU, even where that is a share.
  const size_t bytes = node_->topology().gpus[0].memory_bytes * 2 * kMaxRanks;
  EXPECT_THAT(SymmetricHeap::Create(*node_, bytes).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(std::to_string(bytes) + " bytes"),
                             ::testing::ContainsRegex("^rank [01]: "))));
  EXPECT_OK(node_->Run([](Rank& rank) { return rank.Barrier(); }));
}

TEST_F(SymmetricHeapTest, IsZeroAtFirst) {
  Make(2, 1 << 20);
  if (IsSkipped()) return;
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    std::vector<char> host(heap_->bytes(), 1);
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(host.data(), heap_->peers(rank.rank()).base[rank.rank()],
                                        host.size(), hipMemcpyDeviceToHost));
    for (const char c : host) {
      if (c != 0) return absl::DataLossError("not zero");
    }
    return absl::OkStatus();
  }));
}

// Every rank writes into every rank's heap, behind something else that lies first there.
TEST_F(SymmetricHeapTest, KernelsReachAllRanks) {
  const int num_ranks = std::min(NumGpus(), 8);
  constexpr int kCount = 100;
  Make(num_ranks, 1 << 16);
  if (IsSkipped()) return;
  ASSERT_OK(heap_->AllocateBytes(777, 256).status());
  for (const bool translate : {false, true}) {
    const absl::StatusOr<SymmetricPtr<uint32_t>> words =
        heap_->Allocate<uint32_t>(static_cast<size_t>(num_ranks) * kCount);
    ASSERT_OK(words.status());
    EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      const device::PeerBases peers = heap_->peers(rank.rank());
      OCTET_RETURN_IF_GPU_ERROR(
          LaunchScatter({.peers = peers, .words = *words, .count = kCount, .translate = translate},
                        rank.stream()));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_RETURN_IF_ERROR(rank.Barrier());
      std::vector<uint32_t> host(static_cast<size_t>(num_ranks) * kCount);
      OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(host.data(), words->Mine(peers),
                                          host.size() * sizeof(uint32_t), hipMemcpyDeviceToHost));
      for (int from = 0; from < num_ranks; ++from) {
        for (int i = 0; i < kCount; ++i) {
          if (host[from * kCount + i] != ScatterValue(from, rank.rank(), i)) {
            return absl::DataLossError("wrong word");
          }
        }
      }
      return absl::OkStatus();
    }));
  }
}

}  // namespace
}  // namespace octet
