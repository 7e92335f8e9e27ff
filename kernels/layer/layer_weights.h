// The weights of a layer on the ranks of a node.
#ifndef OCTET_KERNELS_LAYER_LAYER_WEIGHTS_H_
#define OCTET_KERNELS_LAYER_LAYER_WEIGHTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/layer/layer_workspace.h"
#include "kernels/placement/kernels.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "octet/symmetric_heap.h"
#include "runtime/memory/node_memory.h"

namespace octet {

class LayerWeights {
 public:
  struct OfRank {
    absl::Span<char> router;
    absl::Span<char> first, first_scales, first_bias, second, second_scales,
        second_bias;  // by slot
    absl::Span<char> shared_first, shared_second;
    absl::Span<float> router_bias;  // zeros if the layer has none
    absl::Span<float> logit_bias;  // of the router's product, zeros behind the last expert; or none
  };
  // The arrays of the experts' weights, one after the other: first, first_scales, first_bias, and
  // likewise those of second.
  using ExpertArrays = std::array<placement::SlotArray, placement::kMostSlotArrays>;

  LayerWeights(Node& node, const MoeLayerConfig& config, const LayerRanks& ranks)
      : node_(node.Share()),
        config_(config),
        layer_ranks_(ranks),
        memory_(node),
        ranks_(static_cast<size_t>(node.num_ranks())) {}
  LayerWeights(const LayerWeights&) = delete;
  LayerWeights& operator=(const LayerWeights&) = delete;

  // Once, before anything else and not during Run. `movable`: experts' weights go into a heap, in
  // which other ranks can write them.
  absl::Status Allocate(bool movable);

  // Converts and copies a rank's weights: those of the experts that it has by `placement`, if that
  // is not empty. All ranks call it at the same time.
  absl::Status Load(const Rank& rank, const MoeLayerWeights& weights, const Placement& placement);

  const OfRank& of(const Rank& rank) const { return ranks_[static_cast<size_t>(rank.rank())]; }
  // These need movable experts.
  const SymmetricHeap& heap() const { return *heap_; }
  ExpertArrays Arrays() const;

 private:
  absl::Status AllocateRank(const Rank& rank);
  absl::Status LoadRouter(const OfRank& mine, const MoeLayerWeights& weights) const;
  // Returns the expert in each slot of a rank, or Placement::kFreeSlot.
  std::vector<int32_t> ExpertsOf(const Rank& rank, const Placement& placement) const;
  absl::Status LoadExpert(const OfRank& mine, size_t slot, const MlpWeights& expert) const;
  // On as many threads as the rank has CPUs, or as there can be: conversion takes longer than
  // copying.
  absl::Status LoadExperts(const Rank& rank, const MoeLayerWeights& weights,
                           const Placement& placement) const;

  const std::shared_ptr<Node> node_;
  const MoeLayerConfig config_;
  const LayerRanks layer_ranks_;
  NodeMemory memory_;
  std::unique_ptr<SymmetricHeap> heap_;  // or null
  std::vector<OfRank> ranks_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_LAYER_WEIGHTS_H_
