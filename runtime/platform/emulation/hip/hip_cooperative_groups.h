// cooperative_groups::this_grid().sync(), the only part of HIP's cooperative groups that is
// emulated.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_COOPERATIVE_GROUPS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_COOPERATIVE_GROUPS_H_

#include <hip/hip_runtime.h>

namespace cooperative_groups {

class grid_group {
 public:
  // Waits for all threads of a cooperatively launched grid. Orders memory between them.
  __device__ void sync(
      octet::emulation::Location where = octet::emulation::Location::current()) const {
    octet::emulation::SyncGrid(where);
  }
};

__device__ inline grid_group this_grid() { return {}; }

}  // namespace cooperative_groups

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_COOPERATIVE_GROUPS_H_
