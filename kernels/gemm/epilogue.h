// What becomes of the sums of a grouped product before they are rounded and stored:
//
//   not gated   out[c] = (sum[c] + bias[c]) · row_scale
//   gated       out[c] = swiglu(gate, up · row_scale) (octet/swiglu.h), with gate and up the sums
//               (plus bias) of columns 16·(c/8) + c%8 and 8 more
//
// An epilogue may say where each row of the output goes (kScatters); this one does not.
#ifndef OCTET_KERNELS_GEMM_EPILOGUE_H_
#define OCTET_KERNELS_GEMM_EPILOGUE_H_

#include <hip/hip_runtime.h>

#include <cstddef>

#include "octet/swiglu.h"
#include "tile_gemm.h"

namespace octet {

template <bool gated, bool float32 = false>
struct GemmEpilogue {
  static constexpr bool kGated = gated;
  static constexpr bool kFloat32 = float32;  // what is stored; otherwise it is rounded
  static constexpr bool kScatters = false;   // rows lie in GemmOperands::out

  const float* bias;       // [experts][n], or nullptr
  const float* row_scale;  // [rows], or nullptr
  int n;
  SwiGlu swiglu;

  __device__ bool HasBias() const { return bias != nullptr; }
  __device__ float Bias(int expert, int column) const {
    return bias[static_cast<size_t>(expert) * static_cast<size_t>(n) + static_cast<size_t>(column)];
  }
  __device__ bool HasRowScale() const { return row_scale != nullptr; }
  __device__ float RowScale(int row) const { return row_scale[row]; }
  __device__ __forceinline__ float Gate(float gate, float up) const {
    return device::Swish(swiglu.Gate(gate), swiglu.alpha) * swiglu.Up(up);
  }
};

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_EPILOGUE_H_
