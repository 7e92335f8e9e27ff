// Conversion to 8-bit floats on emulated GPUs. runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_FP8_OPS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_FP8_OPS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/fp8_format.h"
#include "octet/native_fp8.h"

namespace octet::device {

template <typename Fp8>
__device__ inline uint32_t PackFp8(float a, float b, float c, float d) {
  return PackFp8InSoftware<Fp8>(a, b, c, d);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_FP8_OPS_H_
