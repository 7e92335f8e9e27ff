// Shapes drawn at random.
#ifndef OCTET_TOOLS_MEASURE_STEP_RANDOM_SHAPE_H_
#define OCTET_TOOLS_MEASURE_STEP_RANDOM_SHAPE_H_

#include <cstdint>
#include <vector>

#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/ep/strategy_info.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "tools/step/run_spec.h"

namespace octet {

// Limits for drawn shapes.
struct ShapeLimits {
  int compute_units = 0;   // of a GPU
  int wave_size = 0;       // lanes
  int64_t gpu_bytes = 0;   // of memory, on each GPU
  int64_t step_bytes = 0;  // of a step, over all ranks; limits its time
};

// Returns limits that use a small part of the GPUs' memory, with steps that the host's cores check
// in well under a second, even if all nodes share them.
ShapeLimits LimitsOf(const Topology& topology, const NodesOfRanks& nodes);

// A strategy with options that only it has.
struct SoakVariant {
  Strategy strategy = Strategy::kAuto;
  Variant options = {};
};
// Returns every variant that can be drawn: kAuto, and those of all strategies.
const std::vector<SoakVariant>& SoakVariants();

// Returns shape `index` of the sequence that `seed` selects, which still needs CompleteSpec. The
// result depends only on the arguments. Sizes are drawn by their logarithm, so that both small
// shapes and those at the limits occur.
RunSpec RandomShape(uint64_t seed, uint32_t index, const NodesOfRanks& nodes,
                    const ShapeLimits& limits);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_RANDOM_SHAPE_H_
