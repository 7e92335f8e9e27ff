// The kernels of fused experts and their parameters. Shared by the host classes and the .hip files.
#ifndef OCTET_KERNELS_FUSED_KERNELS_H_
#define OCTET_KERNELS_FUSED_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/kernels.h"
#include "kernels/high_throughput/kernels.h"
#include "runtime/device/launch_shape.h"

namespace octet::fused {

// A choice in the order in which choices are sent: by the rank of the expert, within it by (expert,
// token).
struct alignas(16) SendEntry {
  int32_t flat;    // into topk_idx
  int32_t row;     // on the expert's rank
  int32_t holder;  // the row there that gets the token's elements
  uint32_t place;  // high_throughput::PackPlace, with the combine slot in place of the source
};

// How the blocks of a dispatch with a product divide the work. A block with several of these tasks
// does them in this order, and all blocks multiply in the end.
struct DispatchRoles {
  int send_blocks;  // blocks [0, send_blocks) send
  int fill_blocks;  // blocks [0, send_blocks + fill_blocks) complete rows
};

struct DispatchGemmParams {
  high_throughput::DispatchParams dispatch;
  SendEntry* order;          // [M][K]
  uint64_t* ordered_blocks;  // high_throughput::StateWords
  uint64_t* ready_groups;
  DispatchRoles roles;
  // `operands.a` and its scales are the rows that this dispatch receives; offsets and counts are
  // not used.
  GroupedGemmParams product;
};

// The variants that a dispatch can be fused with: GemmTiles::kWide and kMedium.
bool CanFuse(GemmTiles tiles);
// The dynamic shared memory of a block.
LaunchShape DispatchGemmShape(const GroupedGemmVariant& variant,
                              const high_throughput::Layout& layout, int blocks);
// Loads the kernel on the current device and allows it its shared memory.
hipError_t PrepareDispatchGemm(const GroupedGemmVariant& variant, const LaunchShape& shape);
hipError_t DispatchGemmBlocksPerUnit(const GroupedGemmVariant& variant, const LaunchShape& shape,
                                     int* blocks);
// Cooperative: all blocks are resident.
hipError_t LaunchDispatchGemm(const DispatchGemmParams& params, const GroupedGemmVariant& variant,
                              const LaunchShape& shape, hipStream_t stream);

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_KERNELS_H_
