#include "kernels/placement/placed_calls.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ep/physical.h"
#include "kernels/placement/placement_tables.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

class PlacedCalls final : public EpCalls {
 public:
  PlacedCalls(Domain& domain, const EpConfig& config, std::unique_ptr<EpCalls> calls,
              std::unique_ptr<PlacementTables> tables)
      : first_rank_(domain.GlobalRank(0)),
        calls_(std::move(calls)),
        config_(calls_->config()),
        tables_(std::move(tables)) {
    config_.num_experts = config.num_experts;
    config_.placement = config.placement;
  }

  const EpConfig& config() const override { return config_; }
  absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchRequest& request) override;
  absl::StatusOr<DispatchHandle> DispatchSend(Rank& rank, const DispatchArgs& args) override;
  Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const override {
    return calls_->DispatchTraffic(rank, PhysicalIdsOf(rank, topk_idx));
  }
  Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const override {
    return calls_->CombineTraffic(rank, PhysicalIdsOf(rank, topk_idx));
  }

  // These calls know no experts, or have been given physical ones by the dispatch.
  absl::Status Combine(Rank& rank, const CombineRequest& request) override {
    return calls_->Combine(rank, request);
  }
  absl::StatusOr<Received> DispatchReceive(Rank& rank, const DispatchHandle& handle) override {
    return calls_->DispatchReceive(rank, handle);
  }
  absl::Status CombinePhase(Rank& rank, const CombineRequest& request, Phases phase) override {
    return calls_->CombinePhase(rank, request, phase);
  }
  absl::Status CheckDispatch(const Rank& rank, const DispatchRequest& request,
                             Phases phases) const override {
    return calls_->CheckDispatch(rank, request, phases);
  }
  absl::Status CheckCombine(const Rank& rank, const CombineRequest& request) const override {
    return calls_->CheckCombine(rank, request);
  }
  absl::Status CheckReceivedIsValid(const Rank& rank, const DispatchHandle& handle) const override {
    return calls_->CheckReceivedIsValid(rank, handle);
  }
  absl::Status PrepareDispatchGemm(Rank& rank, const DispatchProduct& product) override {
    return calls_->PrepareDispatchGemm(rank, product);
  }
  absl::Status PrepareGemmCombine(Rank& rank, const CombineProduct& product) override {
    return calls_->PrepareGemmCombine(rank, product);
  }
  absl::StatusOr<int> RowsNeeded(Rank& rank) override { return calls_->RowsNeeded(rank); }
  absl::StatusOr<RankSet> MaskedRanks(Rank& rank) override { return calls_->MaskedRanks(rank); }
  absl::Status Mask(Rank& rank, RankSet ranks) override { return calls_->Mask(rank, ranks); }
  absl::Status Unmask(Rank& rank, RankSet still_masked) override {
    return calls_->Unmask(rank, still_masked);
  }
  absl::StatusOr<EpStatistics> Statistics(Rank& rank) override { return calls_->Statistics(rank); }
  absl::Status ResetStatistics(Rank& rank) override { return calls_->ResetStatistics(rank); }
  absl::StatusOr<ExpertLoads> Loads() const override;
  absl::Span<const TraceTag> trace_tags() const override { return calls_->trace_tags(); }
  std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const override {
    return calls_->Delivered(rank, rows);
  }
  const EpCalls* intranode() const override { return calls_->intranode(); }

 private:
  // Enqueues the translation of the dispatch's choices, and puts the physical ones in their place.
  absl::Status Translate(Rank& rank, Phases phases, DispatchRequest& request);
  std::vector<int32_t> PhysicalIdsOf(int rank, absl::Span<const int32_t> topk_idx) const {
    return PhysicalIds(config_.placement, first_rank_ + rank, topk_idx, config_.topk);
  }

  const int first_rank_;  // of this node, among those of all nodes
  const std::unique_ptr<EpCalls> calls_;
  EpConfig config_;
  const std::unique_ptr<PlacementTables> tables_;
};

absl::Status PlacedCalls::Translate(Rank& rank, Phases phases, DispatchRequest& request) {
  OCTET_RETURN_IF_ERROR(calls_->CheckDispatch(rank, request, phases));
  DispatchArgs& args = request.args;
  // A dispatch with the layout of another one goes where that one went.
  if (args.high_throughput.cached != nullptr || args.num_tokens == 0) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(args.topk_idx, tables_->Translate(rank, args.topk_idx, args.num_tokens));
  return absl::OkStatus();
}

absl::StatusOr<Received> PlacedCalls::Dispatch(Rank& rank, const DispatchRequest& request) {
  DispatchRequest physical = request;
  OCTET_RETURN_IF_ERROR(Translate(rank, Phases::kBoth, physical));
  return calls_->Dispatch(rank, physical);
}

absl::StatusOr<ExpertLoads> PlacedCalls::Loads() const {
  OCTET_ASSIGN_OR_RETURN(const ExpertLoads physical, calls_->Loads());
  return LogicalLoads(config_.placement, physical);
}

absl::StatusOr<DispatchHandle> PlacedCalls::DispatchSend(Rank& rank, const DispatchArgs& args) {
  DispatchRequest physical = {.args = args};
  OCTET_RETURN_IF_ERROR(Translate(rank, Phases::kSend, physical));
  return calls_->DispatchSend(rank, physical.args);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EpCalls>> MakePlaced(Domain& domain, const EpConfig& config,
                                                    const ExpertParallelOptions& options) {
  OCTET_RETURN_IF_ERROR(CheckPlacement(config, domain.num_ranks()));
  if (!domain.several_nodes()) OCTET_RETURN_IF_ERROR(Validate(config, domain.num_ranks()));
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<EpCalls> calls,
                         MakeCalls(domain, PhysicalConfig(config), options));
  OCTET_ASSIGN_OR_RETURN(
      std::unique_ptr<PlacementTables> tables,
      PlacementTables::Create(
          domain, config.placement,
          {.topk = config.topk, .max_tokens = config.max_tokens_per_rank, .name = options.name}));
  return std::make_unique<PlacedCalls>(domain, config, std::move(calls), std::move(tables));
}

}  // namespace octet
