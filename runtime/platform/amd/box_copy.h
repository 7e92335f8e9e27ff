// Copies boxes of a matrix from global to a block's shared memory on AMD GPUs, which have no copy
// unit for this: the wave itself copies. runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_BOX_COPY_H_
#define OCTET_RUNTIME_PLATFORM_AMD_BOX_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "runtime/platform/box_shape.h"

namespace octet::device {

// In shared memory.
inline constexpr size_t kBoxAlignment = 16;

using RowBoxes = BoxShape;

inline hipError_t MakeRowBoxes(const BoxShape& shape, RowBoxes* boxes) {
  *boxes = shape;
  return hipSuccess;
}

__device__ __forceinline__ void PrefetchBoxes(const RowBoxes& /*boxes*/) {}

struct alignas(8) BoxBarrier {
  uint64_t unused;
};

__device__ __forceinline__ void BoxInit(BoxBarrier* /*barrier*/) {}

__device__ __forceinline__ void BoxFence() {}

struct BoxStarts {
  __device__ __forceinline__ void operator()(void* to, const RowBoxes& boxes, int byte,
                                             int row) const {
    const int chunks = boxes.box_row_bytes / kBoxChunkBytes;
    for (int i = Lane(); i < boxes.box_rows * chunks; i += kWaveSize) {
      const int of_row = i / chunks;
      const int chunk = i % chunks;
      const int from = byte + chunk * kBoxChunkBytes;
      Vec16 v = {};
      if (row + of_row < boxes.rows && from < boxes.row_bytes) {
        v = LoadStream(reinterpret_cast<const Vec16*>(
            static_cast<const char*>(boxes.data) +
            static_cast<int64_t>(row + of_row) * boxes.row_bytes + from));
      }
      const int offset = chunks == 1 ? of_row * kBoxChunkBytes : BoxOffset(of_row, chunk);
      *reinterpret_cast<Vec16*>(static_cast<char*>(to) + offset) = v;
    }
  }
};

template <typename Start>
__device__ __forceinline__ void BoxLoad(BoxBarrier* /*barrier*/, int /*bytes*/, Start start) {
  start(BoxStarts());
}

__device__ __forceinline__ void BoxWait(BoxBarrier* /*barrier*/, uint32_t /*round*/) { SyncWave(); }

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_BOX_COPY_H_
