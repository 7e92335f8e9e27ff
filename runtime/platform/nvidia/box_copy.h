// Copies boxes of a matrix from global to a block's shared memory on NVIDIA GPUs: tensor maps and
// cp.async.bulk.tensor, by one lane. runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_BOX_COPY_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_BOX_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "bulk_copy.h"
#include "device_ops.h"
#include "gemm/async.h"
#include "gemm/tensor_map.h"
#include "runtime/platform/box_shape.h"

namespace octet::device {

// In shared memory.
inline constexpr size_t kBoxAlignment = 1024;

struct RowBoxes {
  CUtensorMap map;
};

inline hipError_t MakeRowBoxes(const BoxShape& shape, RowBoxes* boxes) {
  return internal::MakeTensorMap({.data = shape.data,
                                  .columns = shape.row_bytes,
                                  .rows = shape.rows,
                                  .matrices = 0,
                                  .box_rows = shape.box_rows,
                                  .box_row_bytes = shape.box_row_bytes},
                                 GemmElement::kFp8, &boxes->map);
}

__device__ __forceinline__ void PrefetchBoxes(const RowBoxes& boxes) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&boxes.map) : "memory");
}

// An mbarrier, completed by one arrival and the bytes of a round.
struct alignas(8) BoxBarrier {
  uint64_t state;
};

__device__ __forceinline__ void BoxInit(BoxBarrier* barrier) {
  if (Lane() == 0) {
    internal::InitBarrier(internal::SharedAddress(barrier), 1);
    internal::PublishBarriers();
    internal::FenceSharedForCopies();
  }
  SyncWave();
}

__device__ __forceinline__ void BoxFence() { internal::FenceSharedForCopies(); }

// Starts boxes of a round.
class BoxStarts {
 public:
  __device__ __forceinline__ explicit BoxStarts(BoxBarrier* barrier)
      : barrier_(internal::SharedAddress(barrier)) {}
  __device__ __forceinline__ void operator()(void* to, const RowBoxes& boxes, int byte,
                                             int row) const {
    internal::LoadBox(internal::SharedAddress(to), &boxes.map, barrier_, byte, row);
  }

 private:
  const uint32_t barrier_;
};

template <typename Start>
__device__ __forceinline__ void BoxLoad(BoxBarrier* barrier, int bytes, Start start) {
  if (!internal::ElectOne()) return;
  internal::ExpectBytes(internal::SharedAddress(barrier), static_cast<uint32_t>(bytes));
  start(BoxStarts(barrier));
}

__device__ __forceinline__ void BoxWait(BoxBarrier* barrier, uint32_t round) {
  internal::WaitBarrier(internal::SharedAddress(barrier), round & 1U);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_BOX_COPY_H_
