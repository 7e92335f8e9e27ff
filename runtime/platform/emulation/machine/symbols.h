// Names of functions, for reports.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_SYMBOLS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_SYMBOLS_H_

#include <string>

namespace octet::emulation {

// The name without parameters, or the address if the program has been stripped. Kernels are rarely
// exported, so this reads the symbol table of the file that the function came from.
std::string FunctionName(const void* function);

// "name (program+0x1234)" for an address within a function: what llvm-symbolizer turns into a line.
std::string CodePlace(const void* code);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_SYMBOLS_H_
