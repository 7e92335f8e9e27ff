#include "kernels/ep/base/control_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ep/base/epoch_numbers.h"
#include "kernels/ep/base/fill_memory.h"
#include "kernels/ep/base/heap_pieces.h"
#include "kernels/ep/device/call_layout.h"
#include "kernels/ep/make_layout.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/call_epoch.h"
#include "runtime/device/epoch.h"
#include "runtime/memory/node_memory.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

constexpr int kControlRanks = 2;

struct State {
  std::array<device::CallEpoch, 2> epochs;
  uint64_t rest;
};

ControlNeeds Needs() {
  CallLayout layout = {};
  layout.num_ranks = kControlRanks;
  layout.num_counts = 3;
  HeapPieces heap;
  PlaceCounts(heap, layout);
  layout.control_bytes = heap.end();
  heap.Place(1000);
  layout.bytes = heap.end();
  layout.cached_bytes = 512;
  return {.layout = layout, .state_bytes = sizeof(State), .call_epochs = 2};
}

class ControlMemoryTest : public NodeTest {
 protected:
  // Makes the memory, in `heap` or in a heap of its own.
  void Make(const ControlNeeds& needs, SymmetricHeap* heap = nullptr) {
    ASSERT_OK(control_.TakeHeap(*node_, needs, heap));
    memory_.emplace(*node_);
    ASSERT_OK(node_->Run([&](Rank& rank) {
      EXPECT_FALSE(control_.HasState(rank));
      return control_.AllocateState(rank, *memory_);
    }));
  }

  // Writes to everything that a reset restores, and resets it.
  absl::Status DirtyAndReset(Rank& rank, uint64_t epoch) {
    char* base = control_.peers(rank.rank()).base[rank.rank()];
    OCTET_RETURN_IF_ERROR(FillBytes(rank, base, control_.layout().control_bytes, 0x5a));
    OCTET_RETURN_IF_ERROR(FillBytes(rank, control_.state(rank.rank()), sizeof(State), 0x5a));
    OCTET_RETURN_IF_ERROR(control_.Reset(rank, epoch));
    OCTET_RETURN_IF_ERROR(control_.CopyToHost(rank));
    return rank.Synchronize();
  }

  uint64_t Word(FlagKind flags, int peer, uint64_t epoch = 1) {
    return control_.CopiedWords(flags, {.rank = 0, .peer = peer, .epoch = epoch}).back();
  }

  ControlMemory control_{kControlRanks};
  std::optional<NodeMemory> memory_;
};

TEST_F(ControlMemoryTest, ResetMakesTheEpochTheNextOne) {
  MakeNode(kControlRanks);
  if (IsSkipped()) return;
  Make(Needs());
  constexpr uint64_t kEpoch = 1234;
  ASSERT_OK(node_->Run([&](Rank& rank) { return DirtyAndReset(rank, kEpoch); }));
  for (int peer = 0; peer < kControlRanks; ++peer) {
    EXPECT_EQ(Word(FlagKind::kDispatchCredit, peer), kEpoch - 1);
    EXPECT_EQ(Word(FlagKind::kCombineCredit, peer), kEpoch - 1);
    for (const uint64_t epoch : {kEpoch, kEpoch + 1}) {
      EXPECT_EQ(control_.CopiedWords(FlagKind::kCount, {.peer = peer, .epoch = epoch}),
                (std::vector<uint64_t>{0, 0, 0}));
    }
  }
  const absl::StatusOr<std::vector<State>> state = ToHost<State>(control_.state(0), 1);
  ASSERT_OK(state.status());
  for (const device::CallEpoch& call : (*state)[0].epochs) {
    EXPECT_EQ(call.epoch, kEpoch);
    EXPECT_EQ(call.blocks_started, 0U);
  }
  EXPECT_EQ((*state)[0].rest, 0U);
}

TEST_F(ControlMemoryTest, DispatchCreditsMayHoldALayout) {
  MakeNode(kControlRanks);
  if (IsSkipped()) return;
  ControlNeeds needs = Needs();
  needs.layouts_in_credits = true;
  Make(needs);
  ASSERT_OK(node_->Run([&](Rank& rank) { return DirtyAndReset(rank, 10); }));
  EXPECT_EQ(Word(FlagKind::kDispatchCredit, 1), device::PackEpochCount(9, 0));
  EXPECT_EQ(Word(FlagKind::kCombineCredit, 1), 9U);
}

TEST_F(ControlMemoryTest, RanksAgreeOnEpochsThatNobodyHasUsed) {
  MakeNode(kControlRanks);
  if (IsSkipped()) return;
  std::array<std::array<uint64_t, 3>, kControlRanks> epochs = {};
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    for (uint64_t& epoch : epochs[static_cast<size_t>(rank.rank())]) {
      OCTET_ASSIGN_OR_RETURN(epoch, control_.AgreeOnEpoch(rank));
    }
    return absl::OkStatus();
  }));
  EXPECT_EQ(epochs[0], epochs[1]);
  EXPECT_EQ(epochs[0], (std::array{FirstEpoch(1), FirstEpoch(2), FirstEpoch(3)}));
}

TEST_F(ControlMemoryTest, TakesAPartOfTheCallersHeap) {
  MakeNode(kControlRanks);
  if (IsSkipped()) return;
  const ControlNeeds needs = Needs();
  const HeapSize size = HeapSizeOf(needs.layout);
  EXPECT_EQ(size.uncached, needs.layout.bytes);
  EXPECT_EQ(size.cached, 512U);
  const auto heap = SymmetricHeap::Create(
      *node_, HeapSize{.uncached = 1024 + size.uncached, .cached = 1024 + size.cached});
  ASSERT_OK(heap.status());
  ASSERT_OK((*heap)->AllocateBytes(1, 1024).status());
  ASSERT_OK((*heap)->AllocateBytes(1, 1024, HeapMemory::kCached).status());
  Make(needs, heap->get());
  for (const HeapMemory kind : {HeapMemory::kUncached, HeapMemory::kCached}) {
    const device::PeerBases whole = (*heap)->peers(1, kind);
    const device::PeerBases& part =
        kind == HeapMemory::kUncached ? control_.peers(1) : control_.cached_peers(1);
    EXPECT_EQ(part.rank, 1);
    for (int peer = 0; peer < kControlRanks; ++peer) {
      EXPECT_EQ(part.base[peer], whole.base[peer] + SymmetricHeap::kAlignment);
    }
  }
  EXPECT_EQ(ControlMemory(kControlRanks).TakeHeap(*node_, needs, heap->get()).code(),
            absl::StatusCode::kResourceExhausted)
      << "there is no room for a second one";
}

}  // namespace
}  // namespace octet
