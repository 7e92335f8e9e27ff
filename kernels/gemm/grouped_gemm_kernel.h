// The kernels of the grouped product. One launch computes the product of all experts: every block
// reads where the experts' rows lie, and takes units of tiles until there are no more.
//
// A file for each element of the operands instantiates GroupedGemmOf, so that they are compiled one
// beside the other.
#ifndef OCTET_KERNELS_GEMM_GROUPED_GEMM_KERNEL_H_
#define OCTET_KERNELS_GEMM_GROUPED_GEMM_KERNEL_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <type_traits>

#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/gemm_trace.h"
#include "kernels/gemm/grouped_gemm_of.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/tile_walk.h"
#include "kernels/gemm/variants.h"
#include "runtime/device/load_kernel.h"
#include "tile_gemm.h"

namespace octet {
namespace gemm_internal {

using device::GemmElement;

template <typename Gemm, typename Epilogue, typename Trace>
struct KernelParams {
  device::GemmCall<typename Gemm::Maps, Epilogue, Trace> call;
  const int32_t* offsets;
  const int32_t* counts;
};

template <typename Gemm>
constexpr size_t kKernelSharedBytes = Gemm::kSharedBytes + kMaxGemmExperts * sizeof(ExpertRows);

template <typename Gemm, typename Epilogue, typename Trace>
__global__ void __launch_bounds__(Gemm::kThreads, Gemm::kBlocksPerComputeUnit)
    GroupedGemmKernel(const __grid_constant__ KernelParams<Gemm, Epilogue, Trace> p) {
  HIP_DYNAMIC_SHARED(device::GemmSharedBlock, shared)
  char* const bytes = reinterpret_cast<char*>(shared);
  auto* const rows = reinterpret_cast<ExpertRows*>(bytes + Gemm::kSharedBytes);
  const device::GemmOperands& operands = p.call.operands;
  FindExpertRows(operands, p.offsets, p.counts, rows);
  __syncthreads();
  Gemm::Run(p.call, TileWalk<Gemm>(rows, operands.experts, operands.n), bytes);
}

// The kernel of one variant.
template <GemmTiles tiles, GemmElement element, typename Epilogue, bool traced>
struct Variant {
  using Gemm = device::TileGemm<tiles, element>;
  using Trace = std::conditional_t<traced, GemmTrace<Gemm::kRows>, NoGemmTrace>;
  static constexpr auto kKernel = GroupedGemmKernel<Gemm, Epilogue, Trace>;

  static GroupedGemmTileShape Shape() {
    return {Gemm::kRows, Gemm::kColumns, Gemm::kClusterBlocks, Gemm::kBlocksPerComputeUnit,
            Gemm::kFreeWaves};
  }

  static hipError_t Load() {
    return device::LoadKernelWithShared(kKernel, kKernelSharedBytes<Gemm>);
  }

  static hipError_t Launch(const GroupedGemmParams& params, int blocks, hipStream_t stream) {
    KernelParams<Gemm, Epilogue, Trace> p = {};
    p.call.operands = params.operands;
    p.call.epilogue = {params.bias, params.row_scale, params.operands.n, params.swiglu};
    p.call.next_unit = params.next_unit;
    if constexpr (traced) p.call.target = params.trace;
    p.offsets = params.offsets;
    p.counts = params.counts;
    const hipError_t error = Gemm::MakeMaps(params.operands, &p.call.maps);
    if (error != hipSuccess) return error;
    void* args[] = {&p};
    return device::LaunchTileGemm<Gemm>(
        kKernel, {.blocks = blocks, .shared_bytes = kKernelSharedBytes<Gemm>, .cooperative = false},
        args, stream);
  }
};

// Return use(Variant<...>()) with the variant of these template arguments.
template <GemmTiles tiles, GemmElement element, typename Epilogue, typename Use>
auto WithTrace(const GroupedGemmVariant& variant, Use use) {
  return WithBool(variant.traced,
                  [&](auto traced) { return use(Variant<tiles, element, Epilogue, traced()>()); });
}

template <GemmTiles tiles, GemmElement element, typename Use>
auto WithEpilogue(const GroupedGemmVariant& variant, Use use) {
  if constexpr (device::OutElementOf(element) == element) {  // sums need no scales
    if (variant.float32) return WithTrace<tiles, element, GemmEpilogue<false, true>>(variant, use);
  }
  return WithBool(variant.gated, [&](auto gated) {
    return WithTrace<tiles, element, GemmEpilogue<gated(), false>>(variant, use);
  });
}

template <GemmElement element, typename Use>
auto WithVariant(const GroupedGemmVariant& variant, Use use) {
  switch (variant.tiles) {
    case GemmTiles::kWide:
      return WithEpilogue<GemmTiles::kWide, element>(variant, use);
    case GemmTiles::kMedium:
      return WithEpilogue<GemmTiles::kMedium, element>(variant, use);
    case GemmTiles::kFew64:
      return WithEpilogue<GemmTiles::kFew64, element>(variant, use);
    case GemmTiles::kFew32:
      return WithEpilogue<GemmTiles::kFew32, element>(variant, use);
    case GemmTiles::kFew16:
      break;
  }
  return WithEpilogue<GemmTiles::kFew16, element>(variant, use);
}

}  // namespace gemm_internal

template <device::GemmElement element>
GroupedGemmTileShape GroupedGemmOf<element>::Shape(const GroupedGemmVariant& variant) {
  return gemm_internal::WithVariant<element>(variant,
                                             [](auto kernel) { return decltype(kernel)::Shape(); });
}

template <device::GemmElement element>
hipError_t GroupedGemmOf<element>::Load(const GroupedGemmVariant& variant) {
  return gemm_internal::WithVariant<element>(variant,
                                             [](auto kernel) { return decltype(kernel)::Load(); });
}

template <device::GemmElement element>
hipError_t GroupedGemmOf<element>::Launch(const GroupedGemmParams& params,
                                          const GroupedGemmVariant& variant, int blocks,
                                          hipStream_t stream) {
  return gemm_internal::WithVariant<element>(variant, [&params, blocks, stream](auto kernel) {
    return decltype(kernel)::Launch(params, blocks, stream);
  });
}

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_GROUPED_GEMM_KERNEL_H_
