// What a layer must compute: in float64 on the host, with a bound on how far the layer's results
// may lie from it.
#ifndef OCTET_KERNELS_ORACLE_LAYER_REFERENCE_H_
#define OCTET_KERNELS_ORACLE_LAYER_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "octet/moe_layer.h"

namespace octet {

// A number that was computed is within `error` of `value`.
struct Bounded {
  double value = 0;
  double error = 0;
  bool may_overflow = false;  // a number that it is computed from, or itself, may be too large

  // `got` may be infinite or NaN where may_overflow; and where `value` is not finite, it must be
  // the same, or NaN too.
  bool Holds(double got) const;
};

// Where a layer rounds to the dtype besides what every layer does.
struct LayerRoundings {
  bool gate_up = false;    // the products with gate and up, before SwiGLU
  bool node_sums = false;  // the sum of each node's experts (CombineOrder::kPerNode)
};

// A layer's weights as its kernels see them: converted, and for FP8 quantized, as Load does. Reads
// `weights` when asked. `config` is MoeLayer::config(), whose path says what rows are quantized.
class LayerReference {
 public:
  LayerReference(const MoeLayerConfig& config, const MoeLayerWeights& weights,
                 const LayerRoundings& roundings = {})
      : config_(config), weights_(weights), roundings_(roundings) {}

  // A token's logits [E], and that of the shared experts' gate last if there is one. x is [H] of
  // the dtype.
  std::vector<Bounded> Logits(absl::Span<const uint16_t> x) const;

  // A token and the router's decisions about it.
  struct Routed {
    absl::Span<const uint16_t> x;       // [H] of the dtype
    absl::Span<const int32_t> experts;  // [K]
    absl::Span<const float> weights;    // [K]
    float shared_gate = 0;              // its logit
  };
  // The token's y [H]. The bound counts every rounding between x and y: products in float32, rows
  // between the products, outputs, sums of each rank's experts and y in the dtype, what `roundings`
  // says, and the quantization of rows between the products, if there is one; whatever the order of
  // sums.
  std::vector<Bounded> Output(const Routed& token) const;

 private:
  // Whether products of the experts read rows of FP8.
  bool HasFp8Rows() const;
  std::vector<Bounded> Mlp(const MlpWeights& weights, absl::Span<const double> x,
                           const WeightFormat& format, const SwiGlu& swiglu) const;

  const MoeLayerConfig config_;
  const MoeLayerWeights& weights_;
  const LayerRoundings roundings_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_ORACLE_LAYER_REFERENCE_H_
