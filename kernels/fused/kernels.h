// The kernels of fused experts and their parameters. Shared by the host classes and the .hip files.
#ifndef OCTET_KERNELS_FUSED_KERNELS_H_
#define OCTET_KERNELS_FUSED_KERNELS_H_

#include <hip/hip_runtime.h>

#include "kernels/gemm/kernels.h"
#include "kernels/high_throughput/kernels.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet::fused {

using high_throughput::DispatchGemmParams;

struct FusedParams {
  DispatchGemmParams p;
  GroupedGemmParams product;
};

// Of variants with GemmTiles::kWide or kMedium.
LaunchShape DispatchGemmShape(const GroupedGemmVariant& variant,
                              const high_throughput::Layout& layout, int blocks);
// Loads the kernel on the current device and allows it its shared memory.
hipError_t PrepareDispatchGemm(const GroupedGemmVariant& variant, const LaunchShape& shape);
// The device must be prepared.
hipError_t DispatchGemmBlocksPerUnit(const GroupedGemmVariant& variant, const LaunchShape& shape,
                                     int* blocks);
// Cooperative: all blocks are resident.
hipError_t LaunchDispatchGemm(const FusedParams& params, const GroupedGemmVariant& variant,
                              const LaunchShape& shape, hipStream_t stream);

// A combine and the product before it. Blocks [0, combine_blocks) combine, the others multiply
// first.
struct ProductCombineParams {
  high_throughput::GemmCombineParams p;
  GroupedGemmParams product;
  const RowSource* sources;  // [rows], of kScattered
  int combine_blocks;
};

struct GemmCombineVariant {
  GemmTiles tiles;  // kWide or kMedium
  bool fp16;
  enum class Rows {
    kChoices,    // CombineOrder::kFlat
    kSums,       // CombineOrder::kPerRank
    kScattered,  // CombineOrder::kFlat; the epilogue stores each row at its origin
  } rows;
  bool traced;  // records into common.trace
};
LaunchShape GemmCombineShape(const GemmCombineVariant& variant, int experts, int blocks);
hipError_t PrepareGemmCombine(const GemmCombineVariant& variant, const LaunchShape& shape);
hipError_t GemmCombineBlocksPerUnit(const GemmCombineVariant& variant, const LaunchShape& shape,
                                    int* blocks);
// Cooperative: all blocks are resident.
hipError_t LaunchGemmCombine(const ProductCombineParams& params, const GemmCombineVariant& variant,
                             const LaunchShape& shape, hipStream_t stream);

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_KERNELS_H_
