// Included before kernels so large that AddressSanitizer's checks of all that is inlined there are
// most of the time that compiling them takes: their functions are then called. It finds the same in
// them.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SANITIZERS_FEW_INLINED_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SANITIZERS_FEW_INLINED_H_

#include <hip/hip_runtime.h>

#undef __forceinline__
#define __forceinline__ inline

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SANITIZERS_FEW_INLINED_H_
