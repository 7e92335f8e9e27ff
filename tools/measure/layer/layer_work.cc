#include "tools/measure/layer/layer_work.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "kernels/ep/physical.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/probe/gpu_rates.h"
#include "tools/measure/probe/link_test.h"
#include "tools/workload/layer_tokens.h"

namespace octet {
namespace {

constexpr double kPlainBytes = 2;  // of an element of the dtype

double ExpertElementBytes(const MoeLayerConfig& config) {
  return static_cast<double>(FormatOf(config.dtype, config.weights).Bytes(1));
}

// Elements of weights that a token is multiplied by.
double ElementsOfToken(const MoeLayerConfig& config, LayerPart part) {
  const double hidden = config.hidden;
  switch (part) {
    case LayerPart::kRouter:
      return hidden * LogitsOf(config);
    case LayerPart::kFirstProduct:
      return 2 * hidden * config.topk * config.intermediate;
    case LayerPart::kSecondProduct:
      return hidden * config.topk * config.intermediate;
    case LayerPart::kShared:
      return 3 * hidden * config.shared_intermediate;
    case LayerPart::kDispatch:
    case LayerPart::kCombine:
      break;
  }
  return 0;
}

// Returns the physical ids of all choices; without a placement the ids themselves.
std::vector<int32_t> PhysicalChoices(const MoeLayerConfig& config, absl::Span<const int> counts,
                                     absl::Span<const int32_t> topk_idx) {
  if (config.placement.empty()) return {topk_idx.begin(), topk_idx.end()};
  std::vector<int32_t> physical;
  size_t done = 0;
  for (size_t source = 0; source < counts.size(); ++source) {
    const size_t choices = static_cast<size_t>(counts[source]) * static_cast<size_t>(config.topk);
    const std::vector<int32_t> of_source = PhysicalIds(
        config.placement, static_cast<int>(source), topk_idx.subspan(done, choices), config.topk);
    physical.insert(physical.end(), of_source.begin(), of_source.end());
    done += choices;
  }
  return physical;
}

// Rows that the busiest rank receives from others; ids are physical.
int64_t MostRows(const MoeLayerConfig& config, absl::Span<const int> counts,
                 absl::Span<const int32_t> topk_idx) {
  const auto topk = static_cast<size_t>(config.topk);
  const int local = config.num_local_experts(static_cast<int>(counts.size()));
  std::vector<int64_t> rows(counts.size(), 0);
  size_t token = 0;
  for (size_t source = 0; source < counts.size(); ++source) {
    for (int i = 0; i < counts[source]; ++i, ++token) {
      std::set<size_t> ranks;
      for (const int32_t expert : topk_idx.subspan(token * topk, topk)) {
        if (expert >= 0) ranks.insert(static_cast<size_t>(expert / local));
      }
      ranks.erase(source);
      for (const size_t rank : ranks) ++rows[rank];
    }
  }
  return *std::ranges::max_element(rows);
}

}  // namespace

LayerWork PartWork(const MoeLayerConfig& config, double tokens_of_a_gpu, double chosen_of_a_gpu,
                   LayerPart part) {
  constexpr double kMultiplyAdd = 2;
  LayerWork work;
  const double elements = ElementsOfToken(config, part);
  work.flops = kMultiplyAdd * tokens_of_a_gpu * elements;
  if (part == LayerPart::kFirstProduct || part == LayerPart::kSecondProduct) {
    work.expert_bytes = chosen_of_a_gpu * elements / config.topk * ExpertElementBytes(config);
    work.weight_bytes = work.expert_bytes;
  } else {
    work.weight_bytes = elements * kPlainBytes;
  }
  return work;
}

double ExpertBytes(const MoeLayerConfig& config) {
  return PartWork(config, 0, 1, LayerPart::kFirstProduct).weight_bytes +
         PartWork(config, 0, 1, LayerPart::kSecondProduct).weight_bytes;
}

LayerWork WorkOf(const MoeLayerConfig& config, absl::Span<const int> counts,
                 absl::Span<const int32_t> topk_idx) {
  const auto ranks = static_cast<int>(counts.size());
  double tokens = 0;
  for (const int count : counts) tokens += count;
  const std::vector<int32_t> physical = PhysicalChoices(config, counts, topk_idx);
  LayerWork all;
  all.chosen_experts = ChosenExperts(physical, ranks);
  for (const LayerPart part : {LayerPart::kRouter, LayerPart::kFirstProduct,
                               LayerPart::kSecondProduct, LayerPart::kShared}) {
    const LayerWork work = PartWork(config, tokens / ranks, all.chosen_experts, part);
    all.flops += work.flops;
    all.weight_bytes += work.weight_bytes;
    all.expert_bytes += work.expert_bytes;
  }
  const double elements = static_cast<double>(MostRows(config, counts, physical)) * config.hidden;
  all.dispatch_link_bytes = elements * ExpertElementBytes(config);
  all.combine_link_bytes = elements * kPlainBytes;
  return all;
}

double ChosenExperts(absl::Span<const int32_t> topk_idx, int num_ranks) {
  std::set<int32_t> chosen(topk_idx.begin(), topk_idx.end());
  chosen.erase(-1);
  return static_cast<double>(chosen.size()) / num_ranks;
}

absl::StatusOr<LayerLimits> MeasureLayerLimits(Node& node, const MoeLayerConfig& config) {
  LayerLimits limits;
  if (node.topology().emulated()) return limits;
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() != 0) return absl::OkStatus();
    OCTET_ASSIGN_OR_RETURN(const GpuRates rates, CurrentGpuRates(node.topology().platform));
    limits.peak_tflops = rates.PeakTeraflops(static_cast<size_t>(ExpertElementBytes(config)));
    limits.memory_tbps = rates.memory_tbps;
    return absl::OkStatus();
  }));
  if (node.num_ranks() == 1) return limits;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<LinkTest> links, LinkTest::Create(node));
  OCTET_ASSIGN_OR_RETURN(limits.link_gbps, links->Gbps({.mover = Mover::kStores}));
  return limits;
}

}  // namespace octet
