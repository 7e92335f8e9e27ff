#include "kernels/low_latency/watch.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/device/peers.h"
#include "runtime/failure.h"
#include "runtime/gpu_status.h"
#include "runtime/status_macros.h"

namespace octet::low_latency {
namespace {

template <typename T>
absl::Status Clear(Rank& rank, absl::Span<T> memory) {
  return OCTET_GPU(hipMemsetAsync(memory.data(), 0, memory.size() * sizeof(T), rank.stream()));
}

}  // namespace

template <typename T>
absl::StatusOr<std::vector<T>> Watch::Read(Rank& rank, absl::Span<T> memory) const {
  const auto* copied = reinterpret_cast<const T*>(copied_.data());
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(copied_.data(), memory.data(), memory.size() * sizeof(T),
                                           hipMemcpyDeviceToHost, rank.stream()));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  return std::vector<T>(copied, copied + memory.size());
}

absl::Status Watch::Init(Rank& rank, const EpConfig& config, NodeMemory& memory) {
  if (config.failure_policy != FailurePolicy::kMask && !config.statistics) return absl::OkStatus();
  const auto num_local = static_cast<size_t>(config.num_local_experts(rank.num_ranks()));
  const auto ranks = static_cast<size_t>(rank.num_ranks());
  OCTET_ASSIGN_OR_RETURN(copied_, memory.Pinned<char>(std::max({kMaxRanks * sizeof(uint32_t),
                                                                2 * ranks * sizeof(uint64_t),
                                                                num_local * sizeof(int64_t)})));
  if (config.failure_policy == FailurePolicy::kMask) {
    OCTET_ASSIGN_OR_RETURN(masks_, memory.Device<uint32_t>(kMaxRanks));
    OCTET_RETURN_IF_ERROR(ClearMasks(rank));
    mask_ticks_ = DeviceTicksOf(config.mask_timeout);
  }
  if (!config.statistics) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(longest_waits_, memory.Device<uint64_t>(kMaxRanks));
  OCTET_ASSIGN_OR_RETURN(wait_ticks_, memory.Device<uint64_t>(2 * ranks));
  OCTET_ASSIGN_OR_RETURN(expert_rows_, memory.Device<int64_t>(num_local));
  OCTET_RETURN_IF_ERROR(Clear(rank, longest_waits_));
  return ResetStatistics(rank);
}

void Watch::Join(Call call, uint32_t* blocks_done, RankSet* left_out, device::FailurePort* port,
                 CallEndParams* end) const {
  if (has_masks()) {
    port->masks = masks_.data();
    if (mask_ticks_ != 0) port->deadline_ticks = mask_ticks_;
    end->left_out = left_out;
  }
  if (has_statistics()) {
    port->longest_waits = longest_waits_.data();
    end->wait_ticks = wait_ticks_.data() + (call == Call::kCombine ? wait_ticks_.size() / 2 : 0);
  }
  if (has_masks() || has_statistics()) end->blocks_done = blocks_done;
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
    // Makes it kMasked.
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemsetAsync(&masks_[static_cast<size_t>(r)], 0xff, sizeof(uint32_t), rank.stream()));
  }
  return absl::OkStatus();
}

absl::Status Watch::ClearMasks(Rank& rank) const { return Clear(rank, masks_); }

absl::StatusOr<EpStatistics> Watch::Statistics(Rank& rank) const {
  EpStatistics statistics;
  OCTET_ASSIGN_OR_RETURN(statistics.expert_rows, Read(rank, expert_rows_));
  OCTET_ASSIGN_OR_RETURN(const std::vector<uint64_t> ticks, Read(rank, wait_ticks_));
  for (size_t i = 0; i < ticks.size(); ++i) {
    (i < ticks.size() / 2 ? statistics.dispatch_waits : statistics.combine_waits)
        .push_back(DeviceTicks(ticks[i]));
  }
  return statistics;
}

absl::Status Watch::ForgetCall(Rank& rank) const { return Clear(rank, longest_waits_); }

absl::Status Watch::ResetStatistics(Rank& rank) const {
  OCTET_RETURN_IF_ERROR(Clear(rank, wait_ticks_));
  return Clear(rank, expert_rows_);
}

}  // namespace octet::low_latency
