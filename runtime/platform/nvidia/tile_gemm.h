// Matrix products by tiles on NVIDIA GPUs (sm_90a): the tensor cores through wgmma, their operands
// through the copy unit (TMA). runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_TILE_GEMM_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_TILE_GEMM_H_

#include <hip/hip_runtime.h>

#include <cstddef>

#include "gemm/rows_gemm.h"
#include "gemm/swapped_gemm.h"
#include "octet/gemm_tiles.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device {

// The tiles of the swizzle are aligned to 1024 bytes.
struct alignas(1024) GemmSharedBlock {
  char bytes[1024];
};

__device__ __forceinline__ float Swish(float x, float alpha) {
  return __fdividef(x, 1.0F + __expf(-(alpha * x)));
}

namespace internal {

template <GemmTiles tiles, GemmElement element>
struct GemmOf;
template <GemmElement element>
struct GemmOf<GemmTiles::kWide, element> {
  using Type = RowsGemm<256, element>;
};
template <GemmElement element>
struct GemmOf<GemmTiles::kMedium, element> {
  using Type = RowsGemm<192, element>;
};
// FP8 has two sets of sums: of a stage, and of the stages until then.
template <>
struct GemmOf<GemmTiles::kWide, GemmElement::kFp8> {
  using Type = RowsGemm<192, GemmElement::kFp8>;
};
template <>
struct GemmOf<GemmTiles::kMedium, GemmElement::kFp8> {
  using Type = RowsGemm<128, GemmElement::kFp8>;
};
// Weights that become 16-bit numbers on the way are read from registers, as wgmma's M alone is.
template <>
struct GemmOf<GemmTiles::kWide, GemmElement::kMxfp4> {
  using Type = SwappedGemm<128, GemmElement::kMxfp4>;
};
template <>
struct GemmOf<GemmTiles::kMedium, GemmElement::kMxfp4>
    : GemmOf<GemmTiles::kWide, GemmElement::kMxfp4> {};
// So has the product with weights that become FP8, in shared memory.
template <>
struct GemmOf<GemmTiles::kWide, GemmElement::kFp8Mxfp4> {
  using Type = RowsGemm<192, GemmElement::kFp8Mxfp4>;
};
template <>
struct GemmOf<GemmTiles::kMedium, GemmElement::kFp8Mxfp4>
    : GemmOf<GemmTiles::kWide, GemmElement::kFp8Mxfp4> {};
template <GemmElement element>
struct GemmOf<GemmTiles::kFew64, element> {
  using Type = SwappedGemm<64, element>;
};
template <GemmElement element>
struct GemmOf<GemmTiles::kFew32, element> {
  using Type = SwappedGemm<32, element>;
};
template <GemmElement element>
struct GemmOf<GemmTiles::kFew16, element> {
  using Type = SwappedGemm<16, element>;
};

}  // namespace internal

template <GemmTiles tiles, GemmElement element>
using TileGemm = typename internal::GemmOf<tiles, element>::Type;

// Launches a kernel that calls TileGemm::Run().
template <typename Gemm, typename... Parameters>
hipError_t LaunchTileGemm(void (*kernel)(Parameters...), const TileGemmLaunch& launch, void** args,
                          hipStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = Gemm::kClusterBlocks;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
  config.blockDim = dim3(Gemm::kThreads);
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = launch.cooperative ? 2 : 1;
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), args);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_TILE_GEMM_H_
