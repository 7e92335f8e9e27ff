#include "tests/runtime/trace_kernels.h"

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/tracer.h"

namespace octet {

template <typename Tracer>
__device__ void Traced(const TracedParams& params) {
  const Tracer tracer(params.trace);
  const uint64_t outer = tracer.Start();
  if (params.second_track) {
    const Tracer second(params.trace, 1, threadIdx.x + 1 == blockDim.x);
    const uint64_t start = second.Start();
    second.Record(start, second.Start(), kSecondTrackTag, blockIdx.x, 10, 11, 12);
  }
  for (int i = 0; i < params.inner; ++i) {
    const uint64_t inner = tracer.Start();
    __syncthreads();
    tracer.Stop(inner, kInnerTag, static_cast<uint32_t>(i));
  }
  tracer.Stop(outer, kOuterTag, blockIdx.x);
  const uint64_t last = tracer.Start();
  tracer.Stop(last, kUnnamedTag);
}

__global__ void TracedKernel(TracedParams params) { Traced<device::Tracer>(params); }

hipError_t LaunchTraced(const TracedParams& params, LaunchShape shape, hipStream_t stream) {
  TracedParams copy = params;
  void* args[] = {&copy};
  return hipLaunchCooperativeKernel(TracedKernel, dim3(shape.blocks), dim3(shape.threads), args,
                                    shape.shared_bytes, stream);
}

}  // namespace octet
