// The `low_latency` strategy: for up to a few hundred tokens a rank, as in decoding. A token
// crosses the link once for each rank that it has chosen, into a staging buffer, and its outputs
// return the same way; nothing is exchanged before. Two calls may be in flight.
//
// Combine adds in order per_rank or flat (kernels/oracle/reference.h), bitwise equal in every run.
#ifndef OCTET_KERNELS_LOW_LATENCY_LOW_LATENCY_H_
#define OCTET_KERNELS_LOW_LATENCY_LOW_LATENCY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/low_latency/kernels.h"
#include "kernels/low_latency/layout.h"
#include "kernels/low_latency/watch.h"
#include "octet/expert_parallel.h"

namespace octet::low_latency {

class LowLatency final : public StrategyBase {
 public:
  LowLatency(Node& node, const EpPlan& plan, const ExpertParallelOptions& options);

  absl::Span<const TraceTag> trace_tags() const override;
  absl::StatusOr<RankSet> MaskedRanks(Rank& rank) override;
  absl::Status Mask(Rank& rank, RankSet ranks) override;
  absl::Status Unmask(Rank& rank, RankSet still_masked) override;
  absl::StatusOr<EpStatistics> Statistics(Rank& rank) override;
  absl::Status ResetStatistics(Rank& rank) override;

 private:
  // The results of one dispatch on a rank, valid until the second dispatch after it.
  struct Batch {
    absl::Span<char> x;
    absl::Span<uint32_t> scales;  // of quantised rows
    absl::Span<RowSource> sources;
    absl::Span<RowRange> ranges;
    absl::Span<int32_t> expert_counts;
    absl::Span<int32_t> expert_offsets;  // none with Output::kRankMajor
    absl::Span<int32_t> split_counts;    // with Output::kRankMajor only
    absl::Span<char> packets;
    absl::Span<int32_t> packet_counts;
    LeftOut* left_out = nullptr;  // with FailurePolicy::kMask only, pinned
  };

  absl::Status ChooseShape();
  absl::Status AllocateBatch(Rank& rank, Batch& batch);

  absl::StatusOr<ControlNeeds> Prepare() override;
  absl::Status InitRank(Rank& rank) override;
  absl::Status VoidCalls(Rank& rank) override;
  absl::Status EnqueueDispatch(Rank& rank, const DispatchRequest& request, Phases phases,
                               DispatchHandle& handle) override;
  Received ReceivedOn(const Rank& rank, const DispatchHandle& handle) const override;
  absl::Status EnqueueCombine(Rank& rank, const CombineRequest& request, Phases phases) override;
  std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const override;
  WireFormat DispatchWire() const override;
  WireFormat CombineWire() const override;
  std::vector<uint64_t> OwnFlags(const FlagWait& wait) override;

  bool watched() const {
    return config().low_latency.failure_policy == FailurePolicy::kMask ||
           config().low_latency.statistics;
  }
  size_t row_bytes() const { return static_cast<size_t>(layout_.row_vecs) * kVecBytes; }
  DispatchVariant DispatchKernel() const;
  CombineVariant CombineKernel() const;
  CommonParams Common(Rank& rank, const Batch& batch, Phases phases, Watch::Call call) const;
  const Watch& WatchOf(const Rank& rank) const { return watches_[Index(rank.rank())]; }
  const Batch& BatchOf(const Rank& rank, uint64_t call) const {
    return batches_[Index(rank.rank())][call % kCallsInFlight];
  }
  Layout layout_ = {};
  std::vector<std::array<Batch, kCallsInFlight>> batches_;  // of each rank
  std::vector<Watch> watches_;                              // of each rank
};

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_LOW_LATENCY_H_
