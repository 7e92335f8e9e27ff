// What follows from the configuration of a layer.
#ifndef OCTET_KERNELS_LAYER_LAYER_CONFIG_H_
#define OCTET_KERNELS_LAYER_LAYER_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/pack_weights.h"
#include "octet/grouped_gemm.h"
#include "octet/moe_layer.h"
#include "octet/routed_experts.h"

namespace octet {

// Passes over a call's tokens (MoeLayerConfig::capacity_rows) begin at multiples of this, where the
// choices of tokens are aligned, and have as many tokens of each rank or fewer at the least.
inline constexpr int kPassTokens = 4;

// With the placement of `config`.
RoutedExpertsConfig ExpertsConfig(const MoeLayerConfig& config);
// Returns that of physical experts, without a placement (kernels/ep/physical.h).
RoutedExpertsConfig PhysicalExpertsConfig(const MoeLayerConfig& config);

// The products of a rank's own tokens: the logits, and those of the shared experts.
GroupedGemmConfig RouterProduct(const MoeLayerConfig& config);
GroupedGemmConfig SharedFirstProduct(const MoeLayerConfig& config);
GroupedGemmConfig SharedSecondProduct(const MoeLayerConfig& config);

// The formats of the experts' weights, and of the router's and the shared experts'.
WeightFormat ExpertWeights(const MoeLayerConfig& config);
WeightFormat PlainWeights(const MoeLayerConfig& config);

// Returns whether the rows that the experts' products read are quantized to FP8.
bool QuantizesRows(const MoeLayerConfig& config);

// As octet/moe_layer.h's, for a layer over all nodes, which may be one.
absl::Status Validate(const MoeLayerConfig& config, const NodesOfRanks& nodes);

// Returns what all nodes must agree about, in words.
std::string TextOf(const MoeLayerConfig& config, const MoeLayerOptions& options);

// Returns kInvalidArgument, naming the tensor, if a layer of this configuration cannot have these
// weights.
absl::Status CheckWeights(const MoeLayerConfig& config, const MoeLayerWeights& weights);

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_LAYER_CONFIG_H_
