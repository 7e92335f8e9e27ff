// The state that a rank of `low_latency` keeps across calls if the configuration asks for it: the
// masked ranks, and statistics. It is in the GPU's memory, since kernels write it; failures do not
// change it.
#ifndef OCTET_KERNELS_LOW_LATENCY_WATCH_H_
#define OCTET_KERNELS_LOW_LATENCY_WATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/device/call_end_params.h"
#include "kernels/ep/device/call_statistics.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/device/failure_record.h"
#include "runtime/memory/node_memory.h"

namespace octet::low_latency {

class Watch {
 public:
  enum class Call { kDispatch, kCombine };

  // Allocates the memory for kernels of at most `blocks` blocks, and enqueues its initialisation:
  // no rank is masked, nothing is counted.
  absl::Status Init(Rank& rank, const EpConfig& config, int blocks, NodeMemory& memory);

  // Enables the kernels of a call to mask and measure. `blocks_done`, `left_out`: CallEndParams.
  void Join(uint32_t* blocks_done, RankSet* left_out, device::FailurePort* port,
            CallEndParams* end) const;
  // Returns the statistics of a kind of call; `words` is null if there are none.
  const CallStatistics& statistics(Call call) const { return statistics_[Index(call)]; }

  bool has_masks() const { return !masks_.empty(); }
  bool has_statistics() const { return statistics_[0].words != nullptr; }

  // As in ExpertParallel.
  absl::StatusOr<RankSet> MaskedRanks(Rank& rank) const;
  absl::Status Mask(Rank& rank, RankSet ranks) const;
  static absl::Status CheckMask(const Rank& rank, RankSet ranks);
  absl::Status ClearMasks(Rank& rank) const;
  absl::StatusOr<EpStatistics> Waits(Rank& rank) const;  // Statistics without expert_rows
  absl::Status ResetStatistics(Rank& rank) const;
  // Adds the measurements of the last completed calls to the totals, before epochs are reset.
  // Measurements of a call that did not end are lost.
  absl::Status SettleStatistics(Rank& rank) const;

 private:
  static size_t Index(Call call) { return call == Call::kDispatch ? 0 : 1; }
  // Returns a copy in pinned memory, made when everything enqueued is done, with the last call
  // added to the totals.
  absl::StatusOr<CallStatistics> ReadStatistics(Rank& rank, Call call) const;
  // Returns the contents of `memory` when everything enqueued is done.
  template <typename T>
  absl::StatusOr<std::vector<T>> Read(Rank& rank, absl::Span<T> memory) const;

  absl::Span<uint32_t> masks_;                     // [kMaxRanks]
  std::array<CallStatistics, 2> statistics_ = {};  // by Index(Call)
  uint64_t mask_ticks_ = 0;                        // config.mask_timeout
  // The destination of Read's copies. It stays with the node if a copy never ends.
  absl::Span<char> copied_;
};

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_WATCH_H_
