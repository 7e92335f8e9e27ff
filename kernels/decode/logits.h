// The logits of all tokens: a row of the router's weights by a block.
#ifndef OCTET_KERNELS_DECODE_LOGITS_H_
#define OCTET_KERNELS_DECODE_LOGITS_H_

#include <cstddef>

#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/tokens.h"
#include "kernels/router/token_logits.h"

namespace octet::decode {

// `sums`: as of TokenLogits.
template <typename Codec>
__device__ __forceinline__ void ComputeLogits(const DecodeParams& p, const Tokens& tokens,
                                              float* sums) {
  using Row = routing::TokenLogits<Codec>;
  const int vecs = p.layout.hidden / device::kElementsPerVec;
  for (int row = static_cast<int>(blockIdx.x); row < p.logit_rows;
       row += static_cast<int>(gridDim.x)) {
    const Row logits(reinterpret_cast<const device::Vec16*>(p.router) +
                         static_cast<size_t>(row) * static_cast<size_t>(vecs),
                     vecs, sums);
    for (int first = 0; first < tokens.num_all(); first += Row::kTogether) {
      logits.Compute(
          Smaller(tokens.num_all() - first, Row::kTogether),
          [&](int i) { return tokens.RowOf(first + i); },
          [&](int i, float sum) {
            const float logit = p.logit_bias == nullptr ? sum : sum + p.logit_bias[row];
            p.logits[(first + i) * p.route.stride + row] = logit;
            const int own = first + i - tokens.first_own();
            if (own >= 0 && own < tokens.num_own()) {
              p.own_logits[own * p.route.stride + row] = logit;
            }
          });
    }
  }
}

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_LOGITS_H_
