// The epilogue of a second product whose rows go straight to the origins of their tokens, to where
// combine's order `flat` expects them. Whoever publishes them follows (gemm_combine.hip).
#ifndef OCTET_KERNELS_FUSED_SCATTER_EPILOGUE_H_
#define OCTET_KERNELS_FUSED_SCATTER_EPILOGUE_H_

#include <hip/hip_runtime.h>

#include "kernels/gemm/epilogue.h"
#include "kernels/high_throughput/layout.h"
#include "octet/peers.h"
#include "octet/row_source.h"

namespace octet::fused {

struct ScatterEpilogue : GemmEpilogue<false> {
  static constexpr bool kScatters = true;

  const RowSource* sources;  // [rows]
  device::PeerBases peers;
  high_throughput::Layout layout;

  // `row`: one that the dispatch has delivered.
  __device__ __forceinline__ void* RowAt(int row) const {
    const RowSource source = sources[row];
    return layout.CombineRow(peers.base[source.rank], source.token, source.k);
  }
};

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_SCATTER_EPILOGUE_H_
