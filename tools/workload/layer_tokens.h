// The tokens that a layer is called for, and what it makes of them, on the host.
#ifndef OCTET_TOOLS_WORKLOAD_LAYER_TOKENS_H_
#define OCTET_TOOLS_WORKLOAD_LAYER_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "octet/dtype.h"
#include "octet/moe_layer.h"
#include "tools/support/npy.h"

namespace octet {

// Tokens of all ranks.
struct LayerTokens {
  std::vector<int64_t> leading;             // the dimensions of the input before H
  std::vector<std::vector<uint16_t>> rows;  // of each rank: its tokens' [H], of the dtype
  int hidden = 0;

  int num_ranks() const { return static_cast<int>(rows.size()); }
  int count(int rank) const;        // of a rank's tokens
  std::vector<int> counts() const;  // of each rank's
  int total() const;
  int most() const;  // of a rank
  // Returns the tokens of `num_ranks` ranks from `first` on.
  LayerTokens OfRanks(int first, int num_ranks) const;
};

// What a layer has computed for some tokens.
struct LayerOutput {
  std::vector<uint16_t> x, y;  // [tokens][H] of the dtype
  std::vector<float> logits;   // [tokens][LogitsOf(config)]
  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;  // [tokens][K]
};

// A token's logits: the experts', and that of the shared experts' gate.
inline int LogitsOf(const MoeLayerConfig& config) {
  return config.num_experts + (config.shared_gate ? 1 : 0);
}

// Splits an array [T, H] over the ranks in order, the first ranks taking one token more where T is
// not divisible, or takes [ranks, T, H] as it is. float16, float32 or uint16, which is bfloat16,
// become the dtype, rounded to nearest. kInvalidArgument for other types and shapes.
absl::StatusOr<LayerTokens> SplitTokens(const NpyArray& array, int hidden, int num_ranks,
                                        DType dtype);

// Standard normal rows, `tokens` of them for each rank.
LayerTokens RandomTokens(int tokens, int hidden, int num_ranks, DType dtype, uint64_t seed);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_LAYER_TOKENS_H_
