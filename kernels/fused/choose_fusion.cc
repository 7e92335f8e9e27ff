#include "kernels/fused/choose_fusion.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/fused/dispatch_gemm.h"
#include "kernels/fused/fused_config.h"
#include "kernels/fused/gemm_combine.h"
#include "kernels/fused/products.h"
#include "kernels/gemm/product_params.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/tuning/tuning.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

// The columns of a pass of the product that combine is fused with, and the most passes of a
// product: bench/PERFORMANCE.md.
constexpr int kPassColumns = 512;
constexpr int kMostPasses = 4;

int BuiltInRowParts(const EpConfig& ep) {
  return std::clamp(ep.hidden / kPassColumns, 1, kMostPasses);
}

// Sets what `tuning` leaves open to what `other` has.
void Complete(FusedTuning& tuning, const FusedTuning& other) {
  if (!tuning.tiles.has_value()) tuning.tiles = other.tiles;
  if (!tuning.send_order.has_value()) tuning.send_order = other.send_order;
  if (!tuning.tile_waits.has_value()) tuning.tile_waits = other.tile_waits;
  for (int FusedTuning::* const field :
       {&FusedTuning::send_percent, &FusedTuning::fill_percent, &FusedTuning::combine_percent,
        &FusedTuning::row_parts, &FusedTuning::stages}) {
    if (tuning.*field == 0) tuning.*field = other.*field;
  }
}

// Makes the choices of one call that `config` leaves open and that can be made without its
// products.
void ChooseFusion(const std::optional<FusedChoice>& measured, Fusion& fusion, FusedTuning& tuning) {
  // What is faster depends on the shape and the GPU (bench/PERFORMANCE.md): only tuning can tell.
  if (fusion == Fusion::kAuto) fusion = measured.has_value() ? measured->fusion : Fusion::kNone;
  if (fusion == Fusion::kNone) return;
  if (measured.has_value() && measured->fusion == fusion) Complete(tuning, measured->tuning);
  FusedTuning built_in = fused::kBuiltInTuning;
  if (fusion != Fusion::kTiles) built_in.combine_percent = 0;
  Complete(tuning, built_in);
}

// Makes the choices of the ExpertParallel that the chosen fusions need.
void ChooseEp(RoutedExpertsConfig& config) {
  EpConfig& ep = config.ep;
  if (config.dispatch_gemm == Fusion::kTiles) ep.high_throughput.row_arrivals = true;
  if (config.gemm_combine == Fusion::kEpilogue) {
    ep.combine_order = CombineOrder::kFlat;
    ep.combine_method = CombineMethod::kPush;
  }
  const bool has_parts =
      config.gemm_combine == Fusion::kTiles || config.gemm_combine == Fusion::kEpilogue;
  if (!has_parts || ep.tuning.row_parts != 0) return;
  ep.tuning.row_parts = config.gemm_combine_tuning.row_parts;
  if (ep.tuning.row_parts != 0) return;
  ep.tuning.row_parts = config.gemm_combine == Fusion::kTiles ? BuiltInRowParts(ep) : 1;
}

// Returns `config` with the fusions chosen, given what was measured for each of the calls.
RoutedExpertsConfig WithFusions(const RoutedExpertsConfig& config,
                                const std::optional<FusedChoice>& dispatch_gemm,
                                const std::optional<FusedChoice>& gemm_combine) {
  RoutedExpertsConfig chosen = config;
  ChooseFusion(dispatch_gemm, chosen.dispatch_gemm, chosen.dispatch_gemm_tuning);
  ChooseFusion(gemm_combine, chosen.gemm_combine, chosen.gemm_combine_tuning);
  ChooseEp(chosen);
  return chosen;
}

// Returns whether a call of `config` may be what was measured.
bool MayTake(const RoutedExpertsConfig& config, Fusion RoutedExpertsConfig::* fusion,
             const FusedChoice& choice) {
  // What was measured does not change results, and the order of the sums would.
  if (choice.fusion == Fusion::kEpilogue && config.ep.combine_order != CombineOrder::kFlat) {
    return false;
  }
  RoutedExpertsConfig with = config;
  with.*fusion = choice.fusion;
  return CheckFusedConfig(with).ok();
}

// Returns whether the heap has this much left.
bool HasRoom(const SymmetricHeap& heap, const HeapSize& size) {
  // Fusions need more uncached memory, and as much cached memory as separate kernels.
  constexpr size_t kAlignment = SymmetricHeap::kAlignment;
  const size_t used = (heap.bytes_used() + kAlignment - 1) / kAlignment * kAlignment;
  return used <= heap.bytes() && size.uncached <= heap.bytes() - used;
}

// Loads the kernels of `config`, whose ep is resolved, on the rank's GPU. kUnimplemented if one
// does not fit.
absl::Status LoadKernels(const RoutedExpertsConfig& config, int num_ranks, bool traced) {
  const auto tiles = [](const FusedTuning& tuning) {
    return tuning.tiles.value_or(GemmTiles::kWide);
  };
  if (config.dispatch_gemm == Fusion::kTiles) {
    const GroupedGemmConfig product = FirstProduct(config, num_ranks);
    const fused::DispatchGemm dispatch(
        FusedVariantOf(product, tiles(config.dispatch_gemm_tuning), traced), {}, false);
    OCTET_RETURN_IF_ERROR(
        dispatch.Prepare(high_throughput::MakeLayout(config.ep, num_ranks), 1, 1).status());
  }
  if (!IsOneKernel(config.gemm_combine)) return absl::OkStatus();
  const GroupedGemmConfig product = SecondProduct(config, num_ranks);
  const fused::GemmCombine combine(
      FusedVariantOf(product, tiles(config.gemm_combine_tuning), traced), ParamsOf(product, {}),
      config.gemm_combine);
  const bool sums = config.ep.combine_order == CombineOrder::kPerRank;
  return combine
      .Prepare({.fp16 = config.ep.dtype == DType::kFloat16,
                .traced = traced,
                .rows = sums ? high_throughput::CombineRows::kSums
                             : high_throughput::CombineRows::kChoices},
               1)
      .status();
}

// Returns whether the heap and every GPU have what `chosen` needs.
absl::StatusOr<bool> Fits(Node& node, const RoutedExpertsConfig& chosen, const TuningTable& table,
                          const ExpertParallelOptions& options) {
  const int num_ranks = node.num_ranks();
  const absl::StatusOr<EpPlan> plan = EpPlan::Resolve(chosen.ep, num_ranks, node.topology(), table);
  if (!plan.ok()) return false;
  RoutedExpertsConfig resolved = chosen;
  resolved.ep = plan->config;
  if (options.heap != nullptr) {
    const HeapSize size = InfoOf(resolved.ep.strategy).heap_size(resolved.ep, num_ranks);
    if (!HasRoom(*options.heap, size)) return false;
  }
  std::vector<absl::Status> loaded(static_cast<size_t>(num_ranks));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) {
    loaded[static_cast<size_t>(rank.rank())] =
        LoadKernels(resolved, num_ranks, options.trace != nullptr);
    return absl::OkStatus();
  }));
  for (const absl::Status& status : loaded) {
    if (absl::IsUnimplemented(status)) return false;
    OCTET_RETURN_IF_ERROR(status);
  }
  return true;
}

// What was measured for one of the calls, and may be taken. Nothing comes last.
using Choices = std::vector<std::optional<FusedChoice>>;

Choices ChoicesFrom(const std::vector<FusedChoice>& measured, const RoutedExpertsConfig& config,
                    Fusion RoutedExpertsConfig::* fusion) {
  Choices choices;
  for (const FusedChoice& choice : measured) {
    if (MayTake(config, fusion, choice)) choices.emplace_back(choice);
  }
  choices.emplace_back(std::nullopt);
  return choices;
}

absl::StatusOr<std::shared_ptr<const TuningTable>> TableFor(const RoutedExpertsConfig& config,
                                                            bool measured) {
  if (measured && Has(config.ep.strategy, &StrategyInfo::fuses_products)) {
    return TuningTable::Default();
  }
  return std::make_shared<const TuningTable>();
}

// Returns those of dispatch_gemm and of gemm_combine.
std::pair<Choices, Choices> MeasuredChoices(const TuningTable& table,
                                            const RoutedExpertsConfig& config,
                                            const Topology& topology, int num_ranks) {
  const auto choices = [&](FusedCall call, Fusion RoutedExpertsConfig::* fusion) {
    const std::optional<FusedChoice> found = table.FindFusion(topology, num_ranks, call, config);
    std::vector<FusedChoice> measured;
    if (found.has_value()) measured.push_back(*found);
    return ChoicesFrom(measured, config, fusion);
  };
  return {choices(FusedCall::kDispatchGemm, &RoutedExpertsConfig::dispatch_gemm),
          choices(FusedCall::kGemmCombine, &RoutedExpertsConfig::gemm_combine)};
}

}  // namespace

GroupedGemmVariant FusedVariantOf(const GroupedGemmConfig& product, GemmTiles tiles, bool traced) {
  GroupedGemmVariant variant = VariantOf(product, tiles);
  variant.traced = traced;
  return variant;
}

absl::StatusOr<RoutedExpertsConfig> PreferredFusions(const RoutedExpertsConfig& config,
                                                     const Topology& topology, int num_ranks) {
  OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table, TableFor(config, true));
  const auto [dispatch, combine] = MeasuredChoices(*table, config, topology, num_ranks);
  return WithFusions(config, dispatch.front(), combine.front());
}

absl::StatusOr<RoutedExpertsConfig> ChooseFusions(Node& node, const RoutedExpertsConfig& config,
                                                  const ExpertParallelOptions& options) {
  OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table,
                         TableFor(config, options.use_measured_tuning));
  const auto [dispatch, combine] =
      MeasuredChoices(*table, config, node.topology(), node.num_ranks());
  const auto is_used = [](const std::optional<FusedChoice>& choice, Fusion fusion) {
    return choice.has_value() && choice->fusion != Fusion::kNone &&
           (fusion == Fusion::kAuto || fusion == choice->fusion);
  };
  for (const auto& [first, second] : {std::pair(&dispatch.front(), &combine.front()),
                                      std::pair(&dispatch.back(), &combine.front()),
                                      std::pair(&dispatch.front(), &combine.back())}) {
    RoutedExpertsConfig chosen = WithFusions(config, *first, *second);
    if (!is_used(*first, config.dispatch_gemm) && !is_used(*second, config.gemm_combine)) {
      return chosen;  // as the caller says
    }
    OCTET_ASSIGN_OR_RETURN(const bool fits, Fits(node, chosen, *table, options));
    if (fits) return chosen;
  }
  return WithFusions(config, std::nullopt, std::nullopt);
}

absl::StatusOr<HeapSize> RoutedExperts::HeapBytes(const RoutedExpertsConfig& config,
                                                  int num_ranks) {
  OCTET_RETURN_IF_ERROR(CheckFusedConfig(config));
  OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table, TuningTable::Default());
  OCTET_RETURN_IF_ERROR(Validate(config.ep, num_ranks));
  const auto choices = [&](FusedCall call, Fusion RoutedExpertsConfig::* fusion) {
    std::vector<FusedChoice> measured;
    if (Has(config.ep.strategy, &StrategyInfo::fuses_products)) {
      measured = table->FusionsFor(num_ranks, call, config);
    }
    return ChoicesFrom(measured, config, fusion);
  };
  HeapSize most;
  for (const auto& dispatch :
       choices(FusedCall::kDispatchGemm, &RoutedExpertsConfig::dispatch_gemm)) {
    for (const auto& combine :
         choices(FusedCall::kGemmCombine, &RoutedExpertsConfig::gemm_combine)) {
      const RoutedExpertsConfig chosen = WithFusions(config, dispatch, combine);
      const absl::StatusOr<HeapSize> size = EpPlan::HeapBytes(chosen.ep, num_ranks, *table);
      const bool measured = dispatch.has_value() || combine.has_value();
      if (!size.ok() && measured) continue;  // it is not taken
      OCTET_RETURN_IF_ERROR(size.status());
      most = {.uncached = std::max(most.uncached, size->uncached),
              .cached = std::max(most.cached, size->cached)};
    }
  }
  return most;
}

}  // namespace octet
