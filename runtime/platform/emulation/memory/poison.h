// The contents of unwritten memory: fresh and freed allocations, a block's shared memory when the
// block starts, and the buffer of a bulk load that has not arrived.
//
// Every 16 bits are 0x7fff, so that no type finds a value in its usual range:
//   int16, int32, int64      32767, 2147450879, 9.2e18. Positive, because code that skips negative
//                            numbers would hide the mistake, and no index, count or size.
//   float, double, bfloat16, fp16   a quiet NaN
//   float8 e4m3fn, e5m2      a NaN in each byte; e4m3fnuz has only 0x80, and gets its largest
//                            values, 240 and -240
//   flag, epoch              later than any, so that a wait for it ends at once
//   pointer                  not canonical, so that an access faults
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISON_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISON_H_

#include <cstdint>

namespace octet::emulation {

inline constexpr uint16_t kPoison = 0x7fff;
inline constexpr uint32_t kPoisonWord = kPoison * 0x10001U;

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISON_H_
