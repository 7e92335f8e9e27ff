// A ring of row buffers in a block's shared memory, driven by one wave: while a row is being
// stored, to one place or to several, the next one is loaded.
//
//   ring.Load(0, ...);
//   for (uint32_t row = 0; row < rows; ++row) {
//     if (row + 1 < rows) ring.Load(row + 1, ...);
//     const void* loaded = ring.Await(row);
//     BulkStore(..., loaded, ...);            // as many as there are destinations
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

  // Shared memory for the rings of `waves` waves.
  static constexpr size_t SharedBytes(int waves, uint32_t slot_bytes) {
    return BarrierBytes(waves) + static_cast<size_t>(waves) * slots * slot_bytes;
  }

  // By all lanes of the wave number `wave` of `waves` that have a ring, each with its own. `shared`
  // is the same for all of them, 16-byte aligned; so is slot_bytes, which is at least a row.
  __device__ BulkRing(void* shared, int wave, int waves, uint32_t slot_bytes)
      : barriers_(static_cast<BulkBarrier*>(shared) + wave * slots),
        buffers_(static_cast<char*>(shared) + BarrierBytes(waves) +
                 static_cast<size_t>(wave) * slots * slot_bytes),
        slot_bytes_(slot_bytes) {
    for (int i = 0; i < slots; ++i) BulkInit(barriers_ + i);
  }

  // Starts to load row `row`. All rows before the last one must have been committed.
  __device__ void Load(uint32_t row, const void* from, uint32_t bytes) {
    if (row >= slots) BulkWaitRead<slots - 2>();  // row - slots, whose buffer it takes
    BulkLoad(Buffer(row), from, bytes, barriers_ + row % slots);
  }

  // Waits for row `row`, in order; gives its buffer.
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
