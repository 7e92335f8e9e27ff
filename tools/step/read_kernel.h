// A kernel that reads memory and keeps nothing of it.
#ifndef OCTET_TOOLS_STEP_READ_KERNEL_H_
#define OCTET_TOOLS_STEP_READ_KERNEL_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

// Enqueues a read of `vecs` times 16 bytes. Stores 1 to *found if any of them is not zero, which is
// why no compiler can leave the loads out; otherwise stores nothing.
hipError_t LaunchRead(const uint4* data, int64_t vecs, uint32_t* found, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_READ_KERNEL_H_
