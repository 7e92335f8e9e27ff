#include "negate.h"

#include <cuda_runtime.h>
#include <octet/expert_parallel.h>  // beside CUDA's own headers

#include <type_traits>

#include "negate_kernels.h"

static_assert(std::is_same_v<octet::GpuStream, cudaStream_t>);
static_assert(std::is_same_v<octet::GpuEvent, cudaEvent_t>);

namespace {

Error Check(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

Error LaunchNegate(const void* x, const int32_t* num_rows, int row_elements, void* out,
                   octet::GpuStream stream) {
  Negate<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint16_t*>(x), num_rows, row_elements,
                                           static_cast<uint16_t*>(out));
  return Check(cudaGetLastError());
}

Error LaunchNegateFp8(const void* x, const void* scales, const int32_t* num_rows, int row_elements,
                      int scale_group, void* out, octet::GpuStream stream) {
  NegateFp8<<<kBlocks, kThreads, 0, stream>>>(
      static_cast<const octet::NativeFp8*>(x), static_cast<const float*>(scales), num_rows,
      row_elements, scale_group, static_cast<uint16_t*>(out));
  return Check(cudaGetLastError());
}

Error NewOnGpu(const void* host, size_t bytes, void** gpu) {
  const cudaError_t error = cudaMalloc(gpu, bytes);
  if (error != cudaSuccess) return Check(error);
  return Check(cudaMemcpy(*gpu, host, bytes, cudaMemcpyHostToDevice));
}

Error CopyFromGpu(void* host, const void* gpu, size_t bytes) {
  return Check(cudaMemcpy(host, gpu, bytes, cudaMemcpyDeviceToHost));
}

void FreeOnGpu(void* gpu) { (void)cudaFree(gpu); }
