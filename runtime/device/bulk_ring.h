// A ring of row buffers in a block's shared memory, driven by one wave: loads the next row while
// the current one is being stored, to one destination or several.
//
//   ring.Load(0, ...);
//   for (uint32_t row = 0; row < rows; ++row) {
//     if (row + 1 < rows) ring.Load(row + 1, ...);
//     const void* loaded = ring.Await(row);
//     BulkStore(..., loaded, ...);            // once per destination
//     BulkCommit();
//   }
//   BulkWaitWritten<0>();
//
// Rows are numbered 0, 1, 2, ... for the life of the ring.
#ifndef OCTET_RUNTIME_DEVICE_BULK_RING_H_
#define OCTET_RUNTIME_DEVICE_BULK_RING_H_

#include <cstddef>
#include <cstdint>

#include "bulk_copy.h"
#include "device_ops.h"

namespace octet::device {

template <int slots>
class BulkRing {
 public:
  static_assert(slots >= 2);

  // The shared memory that the rings of `waves` waves need.
  static constexpr size_t SharedBytes(int waves, uint32_t slot_bytes) {
    return BarrierBytes(waves) + static_cast<size_t>(waves) * slots * slot_bytes;
  }

  // All lanes of wave `wave` must call it. `waves` waves have a ring each, in the same `shared`
  // memory, which is 16-byte aligned. slot_bytes is a multiple of 16, at least the bytes of a row,
  // and the same for all waves.
  __device__ BulkRing(void* shared, int wave, int waves, uint32_t slot_bytes)
      : barriers_(static_cast<BulkBarrier*>(shared) + wave * slots),
        buffers_(static_cast<char*>(shared) + BarrierBytes(waves) +
                 static_cast<size_t>(wave) * slots * slot_bytes),
        slot_bytes_(slot_bytes) {
    for (int i = 0; i < slots; ++i) BulkInit(barriers_ + i);
  }

  // Starts to load row `row`. All rows before row - 1 must have been committed.
  __device__ void Load(uint32_t row, const void* from, uint32_t bytes) {
    if (row >= slots) BulkWaitRead<slots - 2>();  // row - slots, whose buffer is reused
    BulkLoad(Buffer(row), from, bytes, barriers_ + row % slots);
  }

  // Waits for row `row` and returns its buffer. Rows must be awaited in order.
  __device__ void* Await(uint32_t row) {
    BulkWaitLoad(barriers_ + row % slots, row / slots);
    return Buffer(row);
  }

 private:
  static constexpr size_t BarrierBytes(int waves) {
    constexpr size_t kAlignment = 128;
    const size_t bytes = static_cast<size_t>(waves) * slots * sizeof(BulkBarrier);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  __device__ void* Buffer(uint32_t row) {
    return buffers_ + static_cast<size_t>(row % slots) * slot_bytes_;
  }

  BulkBarrier* barriers_;
  char* buffers_;
  uint32_t slot_bytes_;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_BULK_RING_H_
