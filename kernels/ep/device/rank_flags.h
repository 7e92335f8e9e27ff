// Units of transfer over the links, and arrays in the symmetric heap with one flag for each rank.
// Shared by host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_RANK_FLAGS_H_
#define OCTET_KERNELS_EP_DEVICE_RANK_FLAGS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

namespace octet {

inline constexpr size_t kVecBytes = 16;  // what a lane loads or stores at once
inline constexpr size_t kLineBytes = 128;
inline constexpr int64_t kWordBytes = sizeof(uint64_t);  // a flag, a count or a credit on the wire

// A flag that many waves poll, in a line of its own.
struct alignas(kLineBytes) Flag {
  uint64_t epoch;
};

// Returns the flag of `rank` in the array that lies at offset `array` from `base`, the heap of the
// rank that owns it.
__host__ __device__ inline uint64_t* FlagOf(char* base, size_t array, int rank) {
  return &reinterpret_cast<Flag*>(base + array)[rank].epoch;
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_RANK_FLAGS_H_
