// The contenders of a layer's measurement, called for the tokens of the layer itself.
#ifndef OCTET_TOOLS_MEASURE_LAYER_LAYER_CONTENDERS_H_
#define OCTET_TOOLS_MEASURE_LAYER_LAYER_CONTENDERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"
#include "octet/node.h"
#include "runtime/memory/device_memory.h"
#include "tools/contenders/layer_contender.h"
#include "tools/contenders/left_out_contender.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

// Node, layer, calls and tokens must outlive it.
class LayerContenders {
 public:
  // What the layer is called with.
  struct Layer {
    const MoeLayer& layer;
    const LayerCalls& calls;
    const LayerTokens& tokens;
  };

  LayerContenders(Node& node, const Layer& layer) : node_(node), layer_(layer) {}

  // ---- Not during Node::Run.

  // Creates those `libraries`, loads their weights and calls each once. `platform`: as in
  // LayerContender::Create. Those that cannot be had, or do not support the layer, are in
  // left_out(). kInvalidArgument for names that nothing has.
  absl::Status Init(const std::vector<LayerLibraries>& libraries, absl::string_view platform,
                    const MoeLayerWeights& weights);
  size_t size() const { return contenders_.size(); }
  const std::string& name(size_t i) const { return contenders_[i].name; }
  const std::vector<LeftOutContender>& left_out() const { return left_out_; }
  // Returns y [tokens of all ranks][H] of contender i's last call.
  absl::StatusOr<std::vector<uint16_t>> Read(size_t i) const;

  // ---- On a rank's thread inside Run, after a call of the layer.

  absl::Status Call(size_t i, Rank& rank);

 private:
  struct OfContender {
    std::string name;
    std::unique_ptr<LayerContender> layer;
    std::vector<DeviceMemory> y;  // of each rank
  };

  absl::StatusOr<OfContender> Make(const LayerLibraries& libraries, absl::string_view platform,
                                   const MoeLayerWeights& weights);
  absl::Status CallOnRank(OfContender& contender, Rank& rank);

  Node& node_;
  const Layer layer_;
  std::vector<OfContender> contenders_;
  std::vector<LeftOutContender> left_out_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_LAYER_LAYER_CONTENDERS_H_
