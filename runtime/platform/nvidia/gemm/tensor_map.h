// Tensor maps, which tell the copy unit where a tile's rows lie. Host code.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_TENSOR_MAP_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_TENSOR_MAP_H_

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

// A row of a box, unless its shape says otherwise: 128 bytes, the width of the swizzle.
inline constexpr int kBoxRowBytes = 128;

// A packed array [matrices][rows][columns], and how many rows of a box are copied at once.
struct TensorShape {
  const void* data;
  int64_t columns;
  int64_t rows;
  int64_t matrices;  // 0: the array has two dimensions
  int box_rows;
  int box_row_bytes = kBoxRowBytes;  // or 64, with a swizzle of that width, or 16, with none
};

// The driver's function, looked up at run time: Octet does not link the driver's library.
inline PFN_cuTensorMapEncodeTiled_v12000 TensorMapEncoder() {
  constexpr unsigned kCudaVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kCudaVersion,
                                       cudaEnableDefault, &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    return nullptr;
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

inline CUtensorMapDataType TensorMapTypeOf(GemmElement element) {
  switch (element) {
    case GemmElement::kBf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case GemmElement::kFp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case GemmElement::kFp8:
    case GemmElement::kMxfp4:
    case GemmElement::kFp8Mxfp4:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

inline CUtensorMapSwizzle SwizzleOf(int row_bytes) {
  switch (row_bytes) {
    case 16:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    default:
      break;
  }
  return CU_TENSOR_MAP_SWIZZLE_128B;
}

// cudaErrorNotSupported if the driver cannot make tensor maps.
inline cudaError_t MakeTensorMap(const TensorShape& shape, GemmElement element, CUtensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = TensorMapEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto bytes = static_cast<cuuint64_t>(BytesOf(element));
  const auto columns = static_cast<cuuint64_t>(shape.columns);
  const auto rows = static_cast<cuuint64_t>(shape.rows);
  const cuuint64_t sizes[] = {columns, rows, static_cast<cuuint64_t>(shape.matrices)};
  const cuuint64_t strides[] = {columns * bytes, columns * rows * bytes};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(shape.box_row_bytes / BytesOf(element)),
                            static_cast<cuuint32_t>(shape.box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUtensorMapDataType type = TensorMapTypeOf(element);
  const CUresult result =
      encode(map, type, shape.matrices == 0 ? 2 : 3, const_cast<void*>(shape.data), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, SwizzleOf(shape.box_row_bytes),
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_TENSOR_MAP_H_
