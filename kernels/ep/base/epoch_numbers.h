// The numbers that an epoch is made of. An epoch has 44 bits (runtime/device/epoch.h): the upper 16
// number the resets of all calls and wrap around, the lower 28 number the calls since the last one.
#ifndef OCTET_KERNELS_EP_BASE_EPOCH_NUMBERS_H_
#define OCTET_KERNELS_EP_BASE_EPOCH_NUMBERS_H_

#include <cstdint>

namespace octet {

inline constexpr int kResetBits = 16;
inline constexpr int kCallBits = 28;

// Returns the epoch of the first call after `resets` resets.
constexpr uint64_t FirstEpoch(uint64_t resets) {
  return ((resets & ((uint64_t{1} << kResetBits) - 1)) << kCallBits) + 1;
}

// Returns the epoch as messages show it: the number of the call since the last reset.
constexpr uint64_t CallOf(uint64_t epoch) { return epoch & ((uint64_t{1} << kCallBits) - 1); }

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_EPOCH_NUMBERS_H_
