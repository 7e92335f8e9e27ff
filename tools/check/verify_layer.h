// Compares what a layer has computed with its reference.
#ifndef OCTET_TOOLS_CHECK_VERIFY_LAYER_H_
#define OCTET_TOOLS_CHECK_VERIFY_LAYER_H_

#include <cstdint>
#include <string>

#include "kernels/oracle/layer_reference.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

// What was compared, and how much of it is wrong.
struct LayerCheck {
  int64_t routed = 0;  // tokens whose experts and weights were compared, to the bit
  int64_t wrong_routed = 0;
  int64_t checked = 0;  // elements of logits and y that were compared with float64
  int64_t wrong = 0;
  double worst = 0;         // the largest error, in parts of what is allowed
  std::string first_wrong;  // a sentence; empty if none is

  bool ok() const { return wrong_routed == 0 && wrong == 0; }
};

// Computes some tokens' logits and outputs in float64, with a bound on the layer's error, as many
// as take seconds, and every token's experts and weights from the layer's own logits. `roundings`:
// what the bound counts besides the roundings of MoeLayer.
LayerCheck VerifyLayer(const MoeLayerConfig& config, const MoeLayerWeights& weights,
                       const LayerOutput& output, const LayerRoundings& roundings = {});

}  // namespace octet

#endif  // OCTET_TOOLS_CHECK_VERIFY_LAYER_H_
