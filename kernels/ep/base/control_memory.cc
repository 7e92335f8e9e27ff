#include "kernels/ep/base/control_memory.h"

#include <hip/hip_runtime.h>

#include <algorithm>

#include "kernels/ep/base/epoch_numbers.h"
#include "kernels/ep/base/fill_memory.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/epoch.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

HeapSize HeapSizeOf(const CallLayout& layout) {
  return {.uncached = layout.bytes, .cached = layout.cached_bytes};
}

absl::Status ControlMemory::TakeHeap(Node& node, const ControlNeeds& needs, SymmetricHeap* heap) {
  needs_ = needs;
  const HeapSize size = HeapSizeOf(needs.layout);
  if (heap == nullptr) {
    OCTET_ASSIGN_OR_RETURN(own_heap_, SymmetricHeap::Create(node, size));
    heap = own_heap_.get();
  }
  OCTET_ASSIGN_OR_RETURN(peers_, TakePart(*heap, size.uncached, HeapMemory::kUncached));
  if (size.cached == 0) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(cached_peers_, TakePart(*heap, size.cached, HeapMemory::kCached));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<device::PeerBases>> ControlMemory::TakePart(SymmetricHeap& heap,
                                                                       size_t bytes,
                                                                       HeapMemory kind) const {
  OCTET_ASSIGN_OR_RETURN(const size_t offset,
                         heap.AllocateBytes(bytes, SymmetricHeap::kAlignment, kind));
  std::vector<device::PeerBases> part;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    device::PeerBases peers = heap.peers(static_cast<int>(r), kind);
    for (int peer = 0; peer < peers.num_ranks; ++peer) peers.base[peer] += offset;
    part.push_back(peers);
  }
  return part;
}

absl::Status ControlMemory::AllocateState(const Rank& rank, NodeMemory& memory) {
  OCTET_ASSIGN_OR_RETURN(Of(rank.rank()).state, memory.Device<char>(needs_.state_bytes));
  return absl::OkStatus();
}

absl::Status ControlMemory::Reset(Rank& rank, uint64_t epoch) {
  RankMemory& mine = Of(rank.rank());
  char* base = peers(rank.rank()).base[rank.rank()];
  OCTET_RETURN_IF_ERROR(FillBytes(rank, base, needs_.layout.control_bytes, 0));
  const size_t ranks = ranks_.size();
  mine.reset_credits.assign(2 * ranks, Flag{epoch - 1});
  if (needs_.layouts_in_credits) {
    std::fill_n(mine.reset_credits.begin(), ranks, Flag{device::PackEpochCount(epoch - 1, 0)});
  }
  const Flag* credits = mine.reset_credits.data();
  for (const size_t offset : {needs_.layout.dispatch_credits, needs_.layout.combine_credits}) {
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(base + offset, credits, sizeof(Flag) * ranks,
                                             hipMemcpyHostToDevice, rank.stream()));
    credits += ranks;
  }
  mine.reset_epochs.assign(static_cast<size_t>(needs_.call_epochs),
                           device::CallEpoch{.epoch = epoch, .blocks_started = 0});
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.state, 0));
  return OCTET_GPU(hipMemcpyAsync(mine.state.data(), mine.reset_epochs.data(),
                                  mine.reset_epochs.size() * sizeof(device::CallEpoch),
                                  hipMemcpyHostToDevice, rank.stream()));
}

absl::StatusOr<uint64_t> ControlMemory::AgreeOnEpoch(Rank& rank) {
  OCTET_RETURN_IF_ERROR(rank.Barrier("the reset of all calls"));
  uint64_t resets = 0;
  for (const RankMemory& each : ranks_) resets = std::max(resets, each.resets);
  OCTET_RETURN_IF_ERROR(rank.Barrier("the reset of all calls"));
  Of(rank.rank()).resets = resets + 1;
  return FirstEpoch(resets + 1);
}

absl::Status ControlMemory::CopyToHost(Rank& rank) {
  RankMemory& mine = Of(rank.rank());
  mine.copied.resize(needs_.layout.control_bytes / sizeof(Flag));
  return OCTET_GPU(hipMemcpyAsync(mine.copied.data(), peers(rank.rank()).base[rank.rank()],
                                  needs_.layout.control_bytes, hipMemcpyDeviceToHost,
                                  rank.stream()));
}

void ControlMemory::DropCopies() {
  for (RankMemory& rank : ranks_) rank.copied = {};
}

std::vector<uint64_t> ControlMemory::CopiedWords(FlagKind flags, const FlagWait& wait) {
  const CallLayout& layout = needs_.layout;
  char* mine = copied(wait.rank);
  std::vector<uint64_t> words;
  switch (flags) {
    case FlagKind::kDispatchCredit:
      words = {*FlagOf(mine, layout.dispatch_credits, wait.peer)};
      break;
    case FlagKind::kCombineCredit:
      words = {*FlagOf(mine, layout.combine_credits, wait.peer)};
      break;
    case FlagKind::kCount:
      for (int column = 0; column < layout.num_counts; ++column) {
        words.push_back(*layout.Count(mine, wait.epoch, wait.peer, column));
      }
      break;
    case FlagKind::kOwn:
      break;
  }
  return words;
}

}  // namespace octet
