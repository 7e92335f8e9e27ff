// device_sort.h for host code.
#ifndef OCTET_TESTS_PLATFORM_DEVICE_SORT_KERNELS_H_
#define OCTET_TESTS_PLATFORM_DEVICE_SORT_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

namespace octet {

hipError_t SortPairs(void* temp, size_t* temp_bytes, const uint32_t* keys, uint32_t* sorted_keys,
                     const int32_t* values, int32_t* sorted_values, int n, int key_bits,
                     hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_DEVICE_SORT_KERNELS_H_
