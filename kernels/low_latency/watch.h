// What a rank of `low_latency` keeps beyond its calls, where the configuration asks for it: the
// ranks that it has masked, and statistics. In the GPU's memory, since kernels write it; failures
// leave it as it is.
#ifndef OCTET_KERNELS_LOW_LATENCY_WATCH_H_
#define OCTET_KERNELS_LOW_LATENCY_WATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device/call_end_params.h"
#include "kernels/expert_parallel.h"
#include "runtime/device/failure_record.h"
#include "runtime/node.h"
#include "runtime/node_memory.h"

namespace octet::low_latency {

class Watch {
 public:
  enum class Call { kDispatch, kCombine };

  // Allocates, and enqueues the beginning: nobody is masked, nothing is counted.
  absl::Status Init(Rank& rank, const EpConfig& config, NodeMemory& memory);

  // Lets the kernels of a call mask and measure. `blocks_done`, `left_out`: CallEndParams.
  void Join(Call call, uint32_t* blocks_done, RankSet* left_out, device::FailurePort* port,
            CallEndParams* end) const;
  // [L] or null.
  int64_t* expert_rows() const { return expert_rows_.data(); }

  bool has_masks() const { return !masks_.empty(); }
  bool has_statistics() const { return !expert_rows_.empty(); }

  // As in ExpertParallel.
  absl::StatusOr<RankSet> MaskedRanks(Rank& rank) const;
  absl::Status Mask(Rank& rank, RankSet ranks) const;
  static absl::Status CheckMask(const Rank& rank, RankSet ranks);
  absl::Status ClearMasks(Rank& rank) const;
  absl::StatusOr<EpStatistics> Statistics(Rank& rank) const;
  absl::Status ResetStatistics(Rank& rank) const;
  // What a call that did not end has measured is in no statistics.
  absl::Status ForgetCall(Rank& rank) const;

 private:
  // What is there when everything enqueued is done.
  template <typename T>
  absl::StatusOr<std::vector<T>> Read(Rank& rank, absl::Span<T> memory) const;

  absl::Span<uint32_t> masks_;          // [kMaxRanks]
  absl::Span<uint64_t> longest_waits_;  // [kMaxRanks]
  absl::Span<uint64_t> wait_ticks_;     // [2][R] by Call
  absl::Span<int64_t> expert_rows_;     // [L]
  uint64_t mask_ticks_ = 0;             // config.mask_timeout
  // What Read has copied. Stays with the node where a copy never ends.
  absl::Span<char> copied_;
};

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_WATCH_H_
