// A kernel that multiplies and adds, and stores one word of each thread at the end: it keeps
// compute units busy, but neither memory nor links.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"
#include "tools/measure/step/compute_kernel.h"

namespace octet {
namespace {

constexpr int kRoundsOfTile = 256;

__global__ void Compute(const ComputeParams p) {
  const device::Tracer trace(p.trace);
  const uint64_t start = trace.Start();
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t value = thread;
  for (int round = 0; round < p.rounds; ++round) {
    value = value * kComputeFactor + kComputeSummand;
    // As between the tiles of a matrix product; lets emulated GPUs run other blocks.
    if (round % kRoundsOfTile == 0) __syncthreads();
  }
  p.out[thread] = value;
  __syncthreads();  // the event is of the whole block
  trace.Stop(start, p.tag);
}

}  // namespace

hipError_t LoadCompute() { return device::LoadKernel(Compute); }

hipError_t LaunchCompute(const ComputeParams& params, const LaunchShape& shape,
                         hipStream_t stream) {
  ComputeParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(Compute, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args, 0, stream);
}

}  // namespace octet
