// HIP's own header, plus typed overloads for the calls that take an untyped kernel pointer in HIP.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_HIP_HIP_RUNTIME_H_
#define OCTET_RUNTIME_PLATFORM_AMD_HIP_HIP_RUNTIME_H_

#include_next <hip/hip_runtime.h>

// Marks a kernel's parameter whose address is used. CUDA needs the word, AMD GPUs do not.
#ifndef __grid_constant__
#define __grid_constant__
#endif

template <typename... Params>
inline hipError_t hipLaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, void** args,
                                  size_t shared_bytes, hipStream_t stream) {
  return hipLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, args, shared_bytes,
                         stream);
}

template <typename... Params>
inline hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, void (*kernel)(Params...)) {
  return hipFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

template <typename... Params>
inline hipError_t hipFuncSetAttribute(void (*kernel)(Params...), hipFuncAttribute attribute,
                                      int value) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

#endif  // OCTET_RUNTIME_PLATFORM_AMD_HIP_HIP_RUNTIME_H_
