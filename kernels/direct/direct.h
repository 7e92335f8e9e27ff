// The `direct` strategy: sends every (token, k) separately and directly to its expert's GPU, and
// returns every expert output directly.
//
// Source of the algorithm: "My first Multi-GPU kernel: Writing All-to-all for AMD MI300X" (Thien
// Tran, 2025), versions 4 to 9. Differences: 64-bit epochs and credits replace flags that are
// reset, prefix sums assign slots, and one kernel sends and receives at the same time.
//
// Combine adds in flat order (kernels/oracle/reference.h).
#ifndef OCTET_KERNELS_DIRECT_DIRECT_H_
#define OCTET_KERNELS_DIRECT_DIRECT_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/direct/kernels.h"
#include "kernels/direct/layout.h"
#include "kernels/ep/base/strategy_base.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"

namespace octet::direct {

class Direct final : public StrategyBase {
 public:
  Direct(Node& node, const EpPlan& plan, const ExpertParallelOptions& options);

  absl::Span<const TraceTag> trace_tags() const override;

 private:
  // The strategy's memory on one rank.
  struct RankState {
    absl::Span<char> recv_x;
    absl::Span<RowSource> sources;
    absl::Span<int32_t> expert_counts;
    absl::Span<int32_t> expert_offsets;
  };

  absl::Status ChooseShape();

  absl::StatusOr<ControlNeeds> Prepare() override;
  absl::Status InitRank(Rank& rank) override;
  absl::Status EnqueueDispatch(Rank& rank, const DispatchRequest& request, Phases phases,
                               DispatchHandle& handle) override;
  Received ReceivedOn(const Rank& rank, const DispatchHandle& handle) const override;
  absl::Status EnqueueCombine(Rank& rank, const CombineRequest& request, Phases phases) override;
  std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const override;
  WireFormat DispatchWire() const override;
  WireFormat CombineWire() const override;
  std::vector<uint64_t> OwnFlags(const FlagWait& wait) override;
  // `mine` and `theirs`: copies of control memory, `theirs` the peer's.
  std::vector<uint64_t> DispatchedRows(char* mine, const FlagWait& wait) const;
  std::vector<uint64_t> CombinedRows(char* mine, char* theirs, int rank) const;

  CommonParams Common(Rank& rank, Phases phases) const;
  size_t row_bytes() const { return static_cast<size_t>(layout_.row_vecs) * kVecBytes; }

  Layout layout_ = {};
  std::vector<RankState> ranks_;
};

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_DIRECT_H_
