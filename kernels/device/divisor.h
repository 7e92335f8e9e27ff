// Division by a number that is known when the host sets up: a multiplication and a shift. Shared by
// host and device.
#ifndef OCTET_KERNELS_DEVICE_DIVISOR_H_
#define OCTET_KERNELS_DEVICE_DIVISOR_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet::device {

// n / divisor for n · divisor < 2^31.
struct Divisor {
  int divisor;
  uint32_t magic;  // 2^31 / divisor, rounded up or 1 more

  __host__ __device__ int Quotient(int n) const {
    return static_cast<int>((static_cast<uint64_t>(static_cast<uint32_t>(n)) * magic) >> 31);
  }
  __host__ __device__ int Remainder(int n) const { return n - Quotient(n) * divisor; }
};
inline Divisor MakeDivisor(int divisor) {
  return Divisor{divisor, (uint32_t{1} << 31) / static_cast<uint32_t>(divisor) + 1};
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_DIVISOR_H_
