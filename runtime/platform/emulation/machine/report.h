// Describes as text what lanes do and wait for.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_REPORT_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_REPORT_H_

#include <string>

#include "scheduler/grid.h"
#include "scheduler/worker.h"

namespace octet::emulation {

// "device 1, kernel Copy, block 2, wave 0, lane 5".
std::string DescribeLane(const Lane& lane);
// "device 1, kernel Copy has run for 2.1 s without a wait that lets anything else run".
std::string DescribeTurn(const Turn& turn);
std::string DescribeWhere(const Location& where);
// Returns one line for all lanes that wait for the same thing. If lanes wait at one place for many
// things, only the first few are listed.
std::string DescribeGrid(const Grid& grid);
// Returns which kernel has kept everything else on the device's thread from running for a while,
// perhaps one of another device: a sentence without a capital or a full stop. Empty if none has.
std::string DescribeHold(const Device& device);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_REPORT_H_
