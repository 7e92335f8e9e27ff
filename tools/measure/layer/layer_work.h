// What a call of a layer has to compute and to move, and what the machine allows.
#ifndef OCTET_TOOLS_MEASURE_LAYER_LAYER_WORK_H_
#define OCTET_TOOLS_MEASURE_LAYER_LAYER_WORK_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/layer_parts.h"
#include "octet/moe_layer.h"
#include "octet/node.h"

namespace octet {

// Of a GPU's mean, unless noted otherwise.
struct LayerWork {
  double flops = 0;         // 2 for each multiplication
  double weight_bytes = 0;  // of the experts that have tokens, the router and the shared experts
  double expert_bytes = 0;  // of those experts alone
  // Rows of one token for one other rank, each counted once: bytes that the busiest rank receives
  // in dispatch and sends in combine.
  double dispatch_link_bytes = 0;
  double combine_link_bytes = 0;
  double chosen_experts = 0;  // that have tokens; replicas count by themselves
};

// Returns the bytes of a routed expert's weights.
double ExpertBytes(const MoeLayerConfig& config);

// Operations, and bytes of experts' weights, of a part.
LayerWork PartWork(const MoeLayerConfig& config, double tokens_of_a_gpu, double chosen_of_a_gpu,
                   LayerPart part);

// The whole call: `counts` are the ranks' tokens, in whose order `topk_idx` [T][K] is.
LayerWork WorkOf(const MoeLayerConfig& config, absl::Span<const int> counts,
                 absl::Span<const int32_t> topk_idx);

// Returns how many different experts of a rank have tokens, on average. With a placement the ids
// are physical.
double ChosenExperts(absl::Span<const int32_t> topk_idx, int num_ranks);

// What a GPU allows at most; nullopt: unknown, or emulated.
struct LayerLimits {
  std::optional<double> peak_tflops;  // dense products of the experts' elements
  std::optional<double> memory_tbps;
  std::optional<double> link_gbps;  // all-to-all stores of this run; nullopt for one rank
};

// Measures the links. Not during Node::Run.
absl::StatusOr<LayerLimits> MeasureLayerLimits(Node& node, const MoeLayerConfig& config);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_LAYER_LAYER_WORK_H_
