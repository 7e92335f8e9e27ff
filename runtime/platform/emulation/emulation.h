// What only an emulated machine can tell or do: for tests and tools. Host code of the emulation
// platform only.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_

#include <string>

#include "config.h"

namespace octet::emulation {

// Why kernels ended with an error since the last ClearErrors(): refused accesses, divergent waves,
// and for a stuck machine what every lane waits for. Empty if none did.
std::string LastReport();

// Makes the devices usable again after an error of a kernel. Nothing may be running.
void ClearErrors();

Config CurrentConfig();

// A new machine instead of the present one: memory, streams and events are gone. Nothing may be
// running and no other thread may use HIP meanwhile.
void Reconfigure(const Config& config);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_
