// Shapes drawn at random, as flags of `octet run`: whatever goes wrong with one can be run again by
// itself, by hand.
#ifndef OCTET_TOOLS_WORKLOAD_RANDOM_SHAPE_H_
#define OCTET_TOOLS_WORKLOAD_RANDOM_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/strategy_info.h"
#include "octet/ep_config.h"
#include "octet/topology.h"

namespace octet {

// What a drawn shape must fit into.
struct ShapeLimits {
  int compute_units = 0;   // of a GPU
  int wave_size = 0;       // lanes
  int64_t gpu_bytes = 0;   // of memory, on each GPU
  int64_t step_bytes = 0;  // of a step, over all ranks: what bounds its time
};

// Memory for a small part of the GPUs', and steps that the host's cores check in well under a
// second.
ShapeLimits LimitsOf(const Topology& topology, int num_ranks);

// A strategy with options that only it has.
struct SoakVariant {
  Strategy strategy = Strategy::kAuto;
  StrategyVariant options = {};
};
// Every variant that there is to draw: kAuto, and those of all strategies.
const std::vector<SoakVariant>& SoakVariants();

// Shape `index` of the sequence that `seed` means: "--ranks=8", "--experts=24", ..., the same flags
// for each shape. A function of its arguments alone. Sizes are drawn by their logarithm, so that
// small shapes and those at the limits both come up.
std::vector<std::string> RandomShape(uint64_t seed, uint32_t index, int num_ranks,
                                     const ShapeLimits& limits);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_RANDOM_SHAPE_H_
