// The GPUs' clock, for host code.
#ifndef OCTET_RUNTIME_DEVICE_CLOCK_H_
#define OCTET_RUNTIME_DEVICE_CLOCK_H_

#include <cstdint>

namespace octet::device {

// Ticks of Clock() per second.
uint64_t ClockHz();

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_CLOCK_H_
