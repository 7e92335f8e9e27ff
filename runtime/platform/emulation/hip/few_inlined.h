// Included before the largest kernels: they take half of the time to compile when their functions
// may be called, a third with AddressSanitizer. They run as fast. Not for ThreadSanitizer, whose
// reports tell of callers only where they are inlined, nor with weak memory, where calls take
// longer than they save.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_FEW_INLINED_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_FEW_INLINED_H_

#include <hip/hip_runtime.h>

#undef __forceinline__
#define __forceinline__ inline

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_FEW_INLINED_H_
