// Launches are written as here, by hipLaunchKernel and without <<<>>>, so that emulated GPUs, too,
// can run them.
#include "negate.h"

#include <hip/hip_runtime.h>

#include "negate_kernels.h"

namespace {

Error Check(hipError_t error) { return error == hipSuccess ? nullptr : hipGetErrorString(error); }

}  // namespace

Error LaunchNegate(const void* x, const int32_t* num_rows, int row_elements, void* out,
                   octet::GpuStream stream) {
  void* args[] = {&x, &num_rows, &row_elements, &out};
  return Check(hipLaunchKernel(Negate, dim3(kBlocks), dim3(kThreads), args, 0, stream));
}

Error LaunchNegateFp8(const void* x, const void* scales, const int32_t* num_rows, int row_elements,
                      int scale_group, void* out, octet::GpuStream stream) {
  void* args[] = {&x, &scales, &num_rows, &row_elements, &scale_group, &out};
  return Check(hipLaunchKernel(NegateFp8, dim3(kBlocks), dim3(kThreads), args, 0, stream));
}

Error NewOnGpu(const void* host, size_t bytes, void** gpu) {
  const hipError_t error = hipMalloc(gpu, bytes);
  if (error != hipSuccess) return Check(error);
  return Check(hipMemcpy(*gpu, host, bytes, hipMemcpyHostToDevice));
}

Error CopyFromGpu(void* host, const void* gpu, size_t bytes) {
  return Check(hipMemcpy(host, gpu, bytes, hipMemcpyDeviceToHost));
}

void FreeOnGpu(void* gpu) { (void)hipFree(gpu); }
