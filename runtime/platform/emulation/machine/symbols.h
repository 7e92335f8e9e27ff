// Names of functions, for reports.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_SYMBOLS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_SYMBOLS_H_

#include <string>

namespace octet::emulation {

// Returns the name without parameters, or the address if the program is stripped. Kernels are
// rarely exported, so this reads the symbol table of the function's file.
std::string FunctionName(const void* function);

// Returns "name (program+0x1234)" for an address within a function. llvm-symbolizer turns it into a
// source line.
std::string CodePlace(const void* code);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_SYMBOLS_H_
