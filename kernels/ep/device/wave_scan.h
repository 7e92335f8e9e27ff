// Prefix sums by one wave or one block.
#ifndef OCTET_KERNELS_EP_DEVICE_WAVE_SCAN_H_
#define OCTET_KERNELS_EP_DEVICE_WAVE_SCAN_H_

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

// The most waves of a block on any platform.
inline constexpr int kMaxWaves = 1024 / kMinWaveSize;

// Returns the sum of the values of this lane and all lower lanes.
__device__ __forceinline__ int32_t WaveInclusiveSum(int32_t value) {
  for (int delta = 1; delta < kWaveSize; delta *= 2) {
    const int32_t below = ShuffleUp(value, delta);
    if (Lane() >= delta) value += below;
  }
  return value;
}

// Values that a lane of a scan has in flight.
inline constexpr int kScanAhead = 8;

// Calls `put(i, sum)` with the sum of all values before the i-th, for i of [0, n), and returns the
// total to all lanes. Called by all lanes of one wave. Value i is `value(i, load(i))`: a lane loads
// several values before it uses the first.
template <typename Load, typename Value, typename Put>
__device__ __forceinline__ int32_t WaveExclusiveScan(int n, Load load, Value value, Put put) {
  int32_t carry = 0;
  for (int chunk = 0; chunk < n; chunk += kScanAhead * kWaveSize) {
    const int first = chunk + Lane();
    decltype(load(0)) loaded[kScanAhead];
#pragma unroll
    for (int u = 0; u < kScanAhead; ++u) {
      if (first + u * kWaveSize < n) loaded[u] = load(first + u * kWaveSize);
    }
#pragma unroll
    for (int u = 0; u < kScanAhead; ++u) {
      if (chunk + u * kWaveSize >= n) break;
      const int i = first + u * kWaveSize;
      const int32_t own = i < n ? value(i, loaded[u]) : 0;
      const int32_t inclusive = WaveInclusiveSum(own);
      if (i < n) put(i, carry + inclusive - own);
      carry += Shuffle(inclusive, kWaveSize - 1);
    }
  }
  return carry;
}

// The same in place: values[i] = sum of values[0 .. i-1]. `values` is shared or global memory that
// only this wave accesses meanwhile.
__device__ inline int32_t WaveExclusiveScan(int32_t* values, int n) {
  const int32_t total = WaveExclusiveScan(
      n, [values](int i) { return values[i]; }, [](int, int32_t value) { return value; },
      [values](int i, int32_t sum) { values[i] = sum; });
  SyncWave();
  return total;
}

// The same by all threads of a block, in shared memory; returns the total to all threads. Callers
// must execute a barrier of the block before it; it ends with one.
__device__ inline int32_t BlockExclusiveScan(int32_t* values, int n) {
  __shared__ int32_t wave_sum[kMaxWaves];
  const int waves = static_cast<int>(blockDim.x) / kWaveSize;
  int32_t carry = 0;
  for (int first = 0; first < n; first += static_cast<int>(blockDim.x)) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int32_t own = i < n ? values[i] : 0;
    const int32_t inclusive = WaveInclusiveSum(own);
    if (Lane() == kWaveSize - 1) wave_sum[Wave()] = inclusive;
    __syncthreads();
    int32_t before = carry;
    for (int w = 0; w < waves; ++w) {
      if (w < Wave()) before += wave_sum[w];
      carry += wave_sum[w];
    }
    if (i < n) values[i] = before + inclusive - own;
    __syncthreads();
  }
  return carry;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_WAVE_SCAN_H_
