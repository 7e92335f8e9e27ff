// The `high_throughput` strategy: for thousands of tokens a rank. The GPUs first compute the
// layout; then a token crosses the link once for each rank that it has chosen, directly to its
// destination offset, and its outputs return the same way.
//
// Combine adds in order per_rank or flat (kernels/oracle/reference.h), bitwise equal in every run.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/ep/combine_product.h"
#include "kernels/ep/dispatch_product.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/layout.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"

namespace octet::high_throughput {

class HighThroughput final : public StrategyBase {
 public:
  HighThroughput(Node& node, const EpPlan& plan, const ExpertParallelOptions& options);

  absl::Span<const TraceTag> trace_tags() const override;

 private:
  // The strategy's memory on one rank, and its layouts.
  struct RankState {
    std::vector<Kept> kept;
    absl::Span<int32_t> before;
    absl::Span<SendEntry> order;  // with row_arrivals
    int fused_blocks = 0;         // of the dispatch with a product that was prepared
    int product_blocks = 0;       // of the combine with a product that was prepared
    absl::Span<RowSource> sources;
    absl::Span<float> row_weights;
    absl::Span<int32_t> row_index;
    absl::Span<int32_t> recv_topk_idx;
    absl::Span<float> recv_topk_weights;
    absl::Span<int32_t> expert_counts;
    absl::Span<int32_t> expert_offsets;
    absl::Span<int32_t> source_offsets;
    HostTotals* totals = nullptr;     // with config.host_totals
    uint64_t* rows_needed = nullptr;  // with config.capacity_rows: DispatchParams::rows_needed
    uint64_t layouts = 0;             // dispatches that made a layout
    uint64_t void_layouts = 0;        // the last layout that a failure has invalidated
  };

  absl::Status ChooseShape();
  DispatchVariant DispatchKernel() const;
  CombineVariant CombineKernel() const;
  // The most blocks of a kernel that counts.
  int MostBlocks() const;
  absl::Status AllocateKept(Rank& rank, RankState& mine);
  absl::Status AllocateReceived(Rank& rank, RankState& mine);
  uint32_t LayoutNumber(int rank, uint64_t layout) const;

  absl::StatusOr<ControlNeeds> Prepare() override;
  absl::Status InitRank(Rank& rank) override;
  absl::Status VoidCalls(Rank& rank) override;
  absl::Status EnqueueDispatch(Rank& rank, const DispatchRequest& request, Phases phases,
                               DispatchHandle& handle) override;
  absl::StatusOr<int> RowsNeeded(Rank& rank) override;
  absl::Status CheckMayLackRoom(const Rank& rank) const;
  absl::Status PrepareDispatchGemm(Rank& rank, const DispatchProduct& product) override;
  absl::Status EnqueueDispatchGemm(Rank& rank, const DispatchRequest& request,
                                   DispatchHandle& handle);
  Received ReceivedOn(const Rank& rank, const DispatchHandle& handle) const override;
  absl::Status EnqueueCombine(Rank& rank, const CombineRequest& request, Phases phases) override;
  absl::Status PrepareGemmCombine(Rank& rank, const CombineProduct& product) override;
  absl::Status EnqueueGemmCombine(Rank& rank, const CombineRequest& request);
  // Checks that the handle's layout is kept.
  absl::Status CheckHandle(const Rank& rank, const DispatchHandle& handle) const override;
  std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const override;
  WireFormat DispatchWire() const override;
  WireFormat CombineWire() const override;
  std::vector<uint64_t> OwnFlags(const FlagWait& wait) override;

  // Returns the words of the rows that `wait` is for, in a copy of the control memory.
  std::vector<uint64_t> ArrivalWords(const FlagWait& wait, char* control) const;
  // Checks the arguments that only this strategy has.
  absl::Status CheckCachedAndScales(const Rank& rank, const DispatchArgs& args) const;
  DispatchParams DispatchParamsOf(Rank& rank, const DispatchRequest& request, Phases phases,
                                  const DispatchHandle& handle) const;
  CommonParams Common(Rank& rank, uint64_t layout, Phases phases, int send_waves) const;
  absl::StatusOr<CombineParams> CombineParamsOf(Rank& rank, const CombineRequest& request,
                                                Phases phases) const;
  const Kept& KeptOf(int rank, uint64_t layout) const;
  absl::Status AwaitTotals(Rank& rank, uint64_t epoch_before);

  Layout layout_ = {};
  DispatchShared dispatch_shared_ = {};
  LaunchShape combine_shape_;   // dispatch uses shape()
  int chunked_send_waves_ = 0;  // that send in a combine whose rows leave in chunks
  std::vector<RankState> ranks_;
};

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_H_
