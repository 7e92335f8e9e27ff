// The layers of well-known models.
#ifndef OCTET_TOOLS_WORKLOAD_MODEL_SHAPES_H_
#define OCTET_TOOLS_WORKLOAD_MODEL_SHAPES_H_

#include "octet/model_folder.h"
#include "octet/moe_layer.h"
#include "octet/router.h"

namespace octet {

// Sizes that emulated GPUs compute in a moment: the defaults of commands there.
struct SmallSizes {
  int experts = 32;
  int topk = 4;
  int hidden = 256;
  int intermediate = 128;
};
inline constexpr SmallSizes kSmallSizes;

// Return the members of the configuration that a model decides, but for the router.

// The layer of the family's well-known model, which the .cc names beside each shape.
MoeLayerConfig ModelShape(ModelFamily family);
// The same with kSmallSizes.
MoeLayerConfig SmallShape(ModelFamily family);

// The router of that model. Experts form groups only if their number allows it.
RouterConfig ModelRouter(ModelFamily family, int num_experts);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_MODEL_SHAPES_H_
