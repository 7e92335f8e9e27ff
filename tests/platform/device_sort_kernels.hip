#include "tests/platform/device_sort_kernels.h"

#include "device_sort.h"

namespace octet {

// NOLINTNEXTLINE(readability-function-size): CUB's parameters
hipError_t SortPairs(void* temp, size_t* temp_bytes, const uint32_t* keys, uint32_t* sorted_keys,
                     const int32_t* values, int32_t* sorted_values, int n, int key_bits,
                     hipStream_t stream) {
  return device::SortPairs(temp, temp_bytes, keys, sorted_keys, values, sorted_values, n, key_bits,
                           stream);
}

}  // namespace octet
