#include "tools/workload/step_input.h"

#include <cstddef>

#include "kernels/ep/physical.h"

namespace octet {

std::vector<RankInput> StepInput::sent() const {
  std::vector<RankInput> inputs;
  for (const PerRank& rank : ranks) {
    inputs.push_back({.num_tokens = rank.num_tokens,
                      .x = rank.x,
                      .topk_idx = rank.topk_idx,
                      .topk_weights = rank.topk_weights,
                      .fp8 = rank.fp8,
                      .scales = rank.scales,
                      .bytes = rank.bytes,
                      .scatter_idx = rank.scatter_idx,
                      .rank = static_cast<int>(inputs.size())});
  }
  return inputs;
}

StepInput PhysicalStep(const EpConfig& config, StepInput input) {
  if (config.placement.empty()) return input;
  for (size_t rank = 0; rank < input.ranks.size(); ++rank) {
    std::vector<int32_t>& ids = input.ranks[rank].topk_idx;
    ids = PhysicalIds(config.placement, static_cast<int>(rank), ids, config.topk);
  }
  input.expert_scale = PhysicalScales(config.placement, input.expert_scale);
  return input;
}

std::vector<RankInput> StepInput::expert_inputs() const {
  std::vector<RankInput> inputs = sent();
  if (!experts_take_x) return inputs;
  for (RankInput& input : inputs) {
    input.fp8 = {};
    input.scales = {};
  }
  return inputs;
}

}  // namespace octet
