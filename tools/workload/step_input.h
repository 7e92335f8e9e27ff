// The inputs of a step, in host memory.
#ifndef OCTET_TOOLS_WORKLOAD_STEP_INPUT_H_
#define OCTET_TOOLS_WORKLOAD_STEP_INPUT_H_

#include <cstdint>
#include <vector>

#include "kernels/oracle/reference.h"
#include "octet/ep_config.h"

namespace octet {

struct StepInput {
  // One rank's; the fields are those of RankInput.
  struct PerRank {
    int num_tokens = 0;
    std::vector<uint16_t> x;
    std::vector<int32_t> topk_idx;
    std::vector<float> topk_weights;
    std::vector<uint8_t> fp8;
    std::vector<uint32_t> scales;
    std::vector<uint8_t> bytes;
    std::vector<int32_t> scatter_idx;
  };
  std::vector<PerRank> ranks;
  std::vector<float> expert_scale;  // [E] factors of the experts' stand-ins
  // The experts' outputs are made of x, whatever bytes were sent in its place.
  bool experts_take_x = false;

  // Views that are valid until the vectors change. Return what ranks send; and what the outputs of
  // their tokens' experts are made of.
  std::vector<RankInput> sent() const;
  std::vector<RankInput> expert_inputs() const;
};

// Returns the step of the calls beneath the placement of `config` (kernels/ep/physical.h), with the
// factors of slots; `input` itself without a placement.
StepInput PhysicalStep(const EpConfig& config, StepInput input);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_STEP_INPUT_H_
