// A count and its epoch in one word, so that a reader never sees one without the other. Shared by
// host and device.
#ifndef OCTET_RUNTIME_DEVICE_EPOCH_H_
#define OCTET_RUNTIME_DEVICE_EPOCH_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet::device {

inline constexpr int kCountBits = 20;

__host__ __device__ inline uint64_t PackEpochCount(uint64_t epoch, uint32_t count) {
  return (epoch << kCountBits) | count;
}
__host__ __device__ inline uint64_t EpochOf(uint64_t word) { return word >> kCountBits; }
__host__ __device__ inline uint32_t CountOf(uint64_t word) {
  return static_cast<uint32_t>(word) & ((1U << kCountBits) - 1);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_EPOCH_H_
