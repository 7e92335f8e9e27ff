#include "kernels/gemm/kernels.h"

#include "kernels/gemm/grouped_gemm_of.h"
#include "kernels/gemm/variants.h"

namespace octet {

GroupedGemmTileShape TileShapeOf(const GroupedGemmVariant& variant) {
  return WithElement(variant.element,
                     [&](auto element) { return GroupedGemmOf<element()>::Shape(variant); });
}

hipError_t LoadGroupedGemm(const GroupedGemmVariant& variant) {
  return WithElement(variant.element,
                     [&](auto element) { return GroupedGemmOf<element()>::Load(variant); });
}

hipError_t LaunchGroupedGemm(const GroupedGemmParams& params, const GroupedGemmVariant& variant,
                             int blocks, hipStream_t stream) {
  return WithElement(variant.element, [&](auto element) {
    return GroupedGemmOf<element()>::Launch(params, variant, blocks, stream);
  });
}

}  // namespace octet
