// A stable sort of pairs in a GPU's memory, using CUB. runtime/platform/README.md states the
// contract. For .hip files only, except those of strategies: a sort takes several launches.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_DEVICE_SORT_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_DEVICE_SORT_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>

namespace octet::device {

inline hipError_t SortPairs(void* temp, size_t* temp_bytes, const uint32_t* keys,
                            uint32_t* sorted_keys, const int32_t* values, int32_t* sorted_values,
                            int n, int key_bits, hipStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(temp, *temp_bytes, keys, sorted_keys, values,
                                         sorted_values, n, 0, key_bits, stream);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_DEVICE_SORT_H_
