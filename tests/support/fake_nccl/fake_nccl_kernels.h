// The kernel of the fake of NCCL.
#ifndef OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_KERNELS_H_
#define OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

// Enqueues a kernel that waits, without a deadline, until `*word` is not 0.
hipError_t LaunchWaitForWord(const uint32_t* word, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_KERNELS_H_
