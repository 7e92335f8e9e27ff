// Prefix sums by one wave.
#ifndef OCTET_KERNELS_DEVICE_WAVE_SCAN_H_
#define OCTET_KERNELS_DEVICE_WAVE_SCAN_H_

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

// values[i] = sum of values[0 .. i-1], in place, by all lanes of one wave; returns the total to all
// of them. `values` is shared or global memory that only this wave touches meanwhile.
__device__ inline int32_t WaveExclusiveScan(int32_t* values, int n) {
  int32_t carry = 0;
  for (int first = 0; first < n; first += kWaveSize) {
    const int i = first + Lane();
    const int32_t own = i < n ? values[i] : 0;
    int32_t inclusive = own;
    for (int delta = 1; delta < kWaveSize; delta *= 2) {
      const int32_t below = ShuffleUp(inclusive, delta);
      if (Lane() >= delta) inclusive += below;
    }
    if (i < n) values[i] = carry + inclusive - own;
    carry += Shuffle(inclusive, kWaveSize - 1);
  }
  SyncWave();
  return carry;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_WAVE_SCAN_H_
