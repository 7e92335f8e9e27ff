// What lanes do and wait for, in words.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_REPORT_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_REPORT_H_

#include <string>

#include "scheduler/grid.h"

namespace octet::emulation {

// "device 1, kernel Copy, block 2, wave 0, lane 5".
std::string DescribeLane(const Lane& lane);
std::string DescribeWhere(const Location& where);
// A line for all lanes that wait for the same thing; of waits at one place for many things, the
// first few.
std::string DescribeGrid(const Grid& grid);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_REPORT_H_
