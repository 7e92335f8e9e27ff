// A thread copies 16 bytes at a time, four of them in flight.
#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/bindings/c/deliver.h"
#include "runtime/device/load_kernel.h"

namespace octet::c {
namespace {

using device::Vec16;

constexpr int kUnroll = 4;
// A ticket is a number in two halves, which float32 has exactly.
constexpr uint32_t kHalfBits = 16;
constexpr uint32_t kHalf = (1U << kHalfBits) - 1;

struct Threads {
  size_t first;
  size_t step;
};

__device__ __forceinline__ void CopyVecs(Vec16* to, const Vec16* from, size_t vecs,
                                         const Threads& threads) {
  for (size_t i = threads.first; i < vecs; i += kUnroll * threads.step) {
    Vec16 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * threads.step < vecs) v[u] = device::LoadStream(from + i + u * threads.step);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * threads.step < vecs) device::StoreStream(to + i + u * threads.step, v[u]);
    }
  }
}

__device__ __forceinline__ void FillVecs(Vec16* to, size_t begin, size_t end, uint32_t word,
                                         const Threads& threads) {
  const Vec16 filled = {{word, word, word, word}};
  for (size_t i = begin + threads.first; i < end; i += threads.step) {
    device::StoreStream(to + i, filled);
  }
}

__device__ __forceinline__ void DeliverRows(const DeliverParams& p, size_t rows,
                                            const Threads& threads) {
  const size_t vecs = rows * static_cast<size_t>(p.row_vecs);
  const size_t all = static_cast<size_t>(p.max_rows) * static_cast<size_t>(p.row_vecs);
  auto* const to = static_cast<Vec16*>(p.to_x);
  if (p.to_x != p.x) CopyVecs(to, static_cast<const Vec16*>(p.x), vecs, threads);
  if (p.zero_rest) FillVecs(to, vecs, all, 0, threads);
}

__global__ void __launch_bounds__(1024) Deliver(const DeliverParams p) {
  const Threads threads = {static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                           static_cast<size_t>(gridDim.x) * blockDim.x};
  const auto local = static_cast<size_t>(p.num_local_experts);
  const auto max_rows = static_cast<size_t>(p.max_rows);
  const auto total = static_cast<size_t>(p.expert_offsets[local]);
  const size_t rows = total < max_rows ? total : max_rows;
  if (p.to_x != nullptr) DeliverRows(p, rows, threads);
  if (p.to_sources != nullptr) {
    auto* const to = static_cast<Vec16*>(p.to_sources);
    CopyVecs(to, static_cast<const Vec16*>(p.sources), rows, threads);
    FillVecs(to, rows, max_rows, ~0U, threads);
  }
  if (p.to_row_weights != nullptr) {
    for (size_t i = threads.first; i < max_rows; i += threads.step) {
      p.to_row_weights[i] = i < rows ? p.row_weights[i] : 0.0F;
    }
  }
  for (size_t i = threads.first; i <= local; i += threads.step) {
    if (p.to_expert_offsets != nullptr) p.to_expert_offsets[i] = p.expert_offsets[i];
    if (p.to_expert_counts != nullptr && i < local) p.to_expert_counts[i] = p.expert_counts[i];
  }
  if (threads.first == 0) {
    const uint32_t number = *p.counter + 1;
    *p.counter = number;
    p.to_ticket[0] = static_cast<float>(number & kHalf);
    p.to_ticket[1] = static_cast<float>(number >> kHalfBits);
  }
}

__global__ void __launch_bounds__(32)
    CheckTicket(const float* ticket, const uint32_t* counter, uint32_t* wrong) {
  if (threadIdx.x != 0) return;
  const uint32_t number = *counter;
  if (ticket[0] != static_cast<float>(number & kHalf) ||
      ticket[1] != static_cast<float>(number >> kHalfBits)) {
    *wrong = 1;
  }
}

}  // namespace

hipError_t LoadDeliver() { return device::LoadKernels(Deliver, CheckTicket); }

hipError_t LaunchDeliver(const DeliverParams& params, const LaunchShape& shape,
                         hipStream_t stream) {
  DeliverParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(Deliver, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args, 0, stream);
}

hipError_t LaunchCheckTicket(const float* ticket, const uint32_t* counter, uint32_t* wrong,
                             hipStream_t stream) {
  void* args[] = {&ticket, &counter, &wrong};
  return hipLaunchKernel(CheckTicket, dim3(1), dim3(32), args, 0, stream);
}

}  // namespace octet::c
