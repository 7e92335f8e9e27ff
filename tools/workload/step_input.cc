#include "tools/workload/step_input.h"

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
                      .scatter_idx = rank.scatter_idx});
  }
  return inputs;
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
