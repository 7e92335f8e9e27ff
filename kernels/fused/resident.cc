#include "kernels/fused/resident.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet::fused {
namespace {

absl::StatusOr<int> Attribute(hipDeviceAttribute_t attribute) {
  int device = 0;
  int value = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace

absl::StatusOr<int> BlocksOfUnit(absl::string_view call, const LaunchShape& shape,
                                 hipError_t loaded,
                                 absl::FunctionRef<hipError_t(int*)> blocks_per_unit) {
  int blocks = 0;
  if (loaded == hipErrorInvalidValue) {  // more shared memory than there is
    (void)hipGetLastError();             // reported here
  } else {
    OCTET_RETURN_IF_GPU_ERROR(loaded);
    OCTET_RETURN_IF_GPU_ERROR(blocks_per_unit(&blocks));
  }
  if (blocks > 0) return blocks;
  OCTET_ASSIGN_OR_RETURN(const int most, Attribute(hipDeviceAttributeMaxSharedMemoryPerBlock));
  return absl::UnimplementedError(
      absl::StrCat("a block of the fused ", call, " needs ", shape.shared_bytes,
                   " bytes of shared memory, and this GPU has ", most,
                   " for a block; use other tiles, fewer experts on a rank, or separate kernels"));
}

absl::StatusOr<int> ResidentBlocks(int blocks, int blocks_of_unit,
                                   const GroupedGemmTileShape& tile) {
  OCTET_ASSIGN_OR_RETURN(const int units, Attribute(hipDeviceAttributeMultiprocessorCount));
  const auto resident =
      static_cast<int>(std::min<int64_t>(blocks, int64_t{units} * blocks_of_unit));
  return std::max(resident - resident % tile.cluster_blocks, tile.cluster_blocks);
}

}  // namespace octet::fused
