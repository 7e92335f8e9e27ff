// Launches the kernels of the grouped product.
#ifndef OCTET_KERNELS_GEMM_KERNELS_H_
#define OCTET_KERNELS_GEMM_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/gemm_tiles.h"
#include "octet/swiglu.h"
#include "runtime/device/trace_event.h"
#include "runtime/platform/gemm_call.h"

namespace octet {

// The most experts of one product: their rows lie in shared memory.
inline constexpr int kMaxGemmExperts = 256;

struct GroupedGemmVariant {
  GemmTiles tiles;
  device::GemmElement element;
  bool gated;
  bool float32;  // output; then not gated, and `element` has no scales
  bool traced;   // records into GroupedGemmParams::trace

  bool operator==(const GroupedGemmVariant&) const = default;
};

struct GroupedGemmTileShape {
  int rows;
  int columns;
  int cluster_blocks;           // that work on one unit together: grids are a multiple
  int blocks_per_compute_unit;  // that run at once
  int free_waves;               // of a block: TileGemm::kFreeWaves
};

// Where a traced product records: the tracks of GemmTrackNames() from first_track on, with the tags
// of GemmTraceTags() from first_tag on.
struct GemmTraceTarget {
  device::TraceBuffer buffer;
  uint32_t first_track;
  uint32_t first_tag;
};

struct GroupedGemmParams {
  device::GemmOperands operands;
  const int32_t* offsets;  // [experts + 1]
  const int32_t* counts;   // [experts], or nullptr: up to the next offset
  const float* bias;       // [experts][n], or nullptr
  const float* row_scale;  // [rows], or nullptr
  SwiGlu swiglu;           // if gated
  int32_t* next_unit;      // 0 before and after the launch
  GemmTraceTarget trace;   // of a traced variant
};

GroupedGemmTileShape TileShapeOf(const GroupedGemmVariant& variant);

// Loads the kernel on the current device.
hipError_t LoadGroupedGemm(const GroupedGemmVariant& variant);
hipError_t LaunchGroupedGemm(const GroupedGemmParams& params, const GroupedGemmVariant& variant,
                             int blocks, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_KERNELS_H_
