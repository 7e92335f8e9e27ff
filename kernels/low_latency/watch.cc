#include "kernels/low_latency/watch.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ep/base/fill_memory.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/epoch.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"

namespace octet::low_latency {
template <typename T>
absl::StatusOr<std::vector<T>> Watch::Read(Rank& rank, absl::Span<T> memory) const {
  const auto* copied = reinterpret_cast<const T*>(copied_.data());
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(copied_.data(), memory.data(), memory.size() * sizeof(T),
                                           hipMemcpyDeviceToHost, rank.stream()));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  return std::vector<T>(copied, copied + memory.size());
}

absl::Status Watch::Init(Rank& rank, const EpConfig& config, int blocks, NodeMemory& memory) {
  size_t most_bytes = kMaxRanks * sizeof(uint32_t);
  if (config.low_latency.failure_policy == FailurePolicy::kMask) {
    OCTET_ASSIGN_OR_RETURN(masks_, memory.Device<uint32_t>(kMaxRanks));
    OCTET_RETURN_IF_ERROR(ClearMasks(rank));
    mask_ticks_ = DeviceTicksOf(config.low_latency.mask_timeout);
  }
  if (config.low_latency.statistics) {
    for (CallStatistics& each : statistics_) {
      each.blocks = blocks;
      OCTET_ASSIGN_OR_RETURN(const absl::Span<uint64_t> words,
                             memory.Device<uint64_t>(each.num_words()));
      each.words = words.data();
      most_bytes = std::max(most_bytes, words.size() * sizeof(uint64_t));
    }
    OCTET_RETURN_IF_ERROR(ResetStatistics(rank));
  }
  if (!has_masks() && !has_statistics()) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(copied_, memory.Pinned<char>(most_bytes));
  return absl::OkStatus();
}

void Watch::Join(uint32_t* blocks_done, RankSet* left_out, device::FailurePort* port,
                 CallEndParams* end) const {
  port->measures_waits = has_statistics();
  if (!has_masks()) return;
  port->masks = masks_.data();
  if (mask_ticks_ != 0) port->deadline_ticks = mask_ticks_;
  *end = {.blocks_done = blocks_done, .left_out = left_out};
}

absl::StatusOr<RankSet> Watch::MaskedRanks(Rank& rank) const {
  OCTET_ASSIGN_OR_RETURN(const std::vector<uint32_t> masks, Read(rank, masks_));
  RankSet masked = 0;
  for (int r = 0; r < rank.num_ranks(); ++r) {
    if (masks[static_cast<size_t>(r)] != device::kCountedOn) masked |= RankSet{1} << r;
  }
  return masked;
}

absl::Status Watch::CheckMask(const Rank& rank, RankSet ranks) {
  if ((ranks >> rank.num_ranks()) != 0 || ((ranks >> rank.rank()) & 1) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank.rank(), " of ", rank.num_ranks(),
                                                   " cannot mask the ranks 0x", absl::Hex(ranks),
                                                   ": they must be others of this node"));
  }
  return absl::OkStatus();
}

absl::Status Watch::Mask(Rank& rank, RankSet ranks) const {
  OCTET_RETURN_IF_ERROR(CheckMask(rank, ranks));
  for (int r = 0; r < rank.num_ranks(); ++r) {
    if (((ranks >> r) & 1) == 0) continue;
    // Stores kMasked.
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemsetAsync(&masks_[static_cast<size_t>(r)], 0xff, sizeof(uint32_t), rank.stream()));
  }
  return absl::OkStatus();
}

absl::Status Watch::ClearMasks(Rank& rank) const { return Fill(rank, masks_, 0); }

absl::StatusOr<CallStatistics> Watch::ReadStatistics(Rank& rank, Call call) const {
  CallStatistics copy = statistics(call);
  const size_t bytes = copy.num_words() * sizeof(uint64_t);
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpyAsync(copied_.data(), copy.words, bytes, hipMemcpyDeviceToHost, rank.stream()));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  copy.words = reinterpret_cast<uint64_t*>(copied_.data());
  const uint64_t half = device::EpochOf(*copy.Call(1)) > device::EpochOf(*copy.Call(0)) ? 1 : 0;
  const uint64_t epoch = device::EpochOf(*copy.Call(half));
  const int first = copy.blocks - static_cast<int>(device::CountOf(*copy.Call(half)));
  for (int block = first; block < copy.blocks; ++block) {
    if (*copy.Completed(half, block) != epoch) return copy;
  }
  for (int peer = 0; peer < rank.num_ranks(); ++peer) {
    uint64_t longest = 0;
    for (int block = first; block < copy.blocks; ++block) {
      longest = std::max(longest, *copy.Wait(half, peer, block));
    }
    *copy.TotalWait(peer) += longest;
  }
  return copy;
}

absl::StatusOr<EpStatistics> Watch::Waits(Rank& rank) const {
  EpStatistics statistics;
  for (const Call call : {Call::kDispatch, Call::kCombine}) {
    OCTET_ASSIGN_OR_RETURN(const CallStatistics read, ReadStatistics(rank, call));
    auto& waits = call == Call::kDispatch ? statistics.dispatch_waits : statistics.combine_waits;
    for (int peer = 0; peer < rank.num_ranks(); ++peer) {
      waits.push_back(DeviceTicks(*read.TotalWait(peer)));
    }
  }
  return statistics;
}

absl::Status Watch::SettleStatistics(Rank& rank) const {
  for (const Call call : {Call::kDispatch, Call::kCombine}) {
    OCTET_ASSIGN_OR_RETURN(const CallStatistics read, ReadStatistics(rank, call));
    const auto totals = static_cast<size_t>(read.Call(0) - read.words);
    std::fill(read.words + totals, read.words + read.num_words(), 0);
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(statistics(call).words, read.words,
                                             read.num_words() * sizeof(uint64_t),
                                             hipMemcpyHostToDevice, rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());  // the copy is used again
  }
  return absl::OkStatus();
}

absl::Status Watch::ResetStatistics(Rank& rank) const {
  for (const CallStatistics& each : statistics_) {
    OCTET_RETURN_IF_ERROR(Fill(rank, absl::MakeSpan(each.words, each.num_words()), 0));
  }
  return absl::OkStatus();
}

}  // namespace octet::low_latency
