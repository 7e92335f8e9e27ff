// Copies one row to several destinations. Two classes with the same interface:
//
//   VectorMover   the lanes of a wave load and store 16 bytes each
//   BulkMover     the GPU's copy unit (bulk_copy.h) moves a row piece by piece through shared
//   memory
//
// Bulk copies keep more bytes in flight than the registers of a wave can hold. This matters when
// few blocks have to move everything.
//
//   Mover mover(memory, ...);                    by all lanes of a wave; one mover for each wave
//   mover.CopyToMany(src, vecs, n, to);          to(i) for i of [0, n): destinations; may shuffle
//   mover.Finish();                              a release by this wave now publishes the copies
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_ROW_MOVER_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_ROW_MOVER_H_

#include <cstddef>
#include <cstdint>

#include "bulk_copy.h"
#include "device_ops.h"
#include "kernels/ep/device/row_copy.h"
#include "runtime/device/bulk_ring.h"

namespace octet::device {

// The shared memory of a block for the movers of its waves, and the size of the pieces that they
// move. VectorMover ignores it.
struct MoverMemory {
  static constexpr int kSlots = 2;

  void* shared = nullptr;  // 16-byte aligned
  int waves = 0;
  uint32_t piece_bytes = 0;

  static constexpr size_t SharedBytes(int waves, uint32_t piece_bytes) {
    return BulkRing<kSlots>::SharedBytes(waves, piece_bytes);
  }
  // Returns the size of the largest equal pieces of a row of `row_bytes` for which `shared_bytes`
  // suffice.
  static constexpr uint32_t PieceBytes(size_t row_bytes, int waves, size_t shared_bytes) {
    const size_t room =
        (shared_bytes - SharedBytes(waves, 0)) / (static_cast<size_t>(waves) * kSlots);
    const size_t most = room / sizeof(Vec16) * sizeof(Vec16);
    const size_t pieces = (row_bytes + most - 1) / most;
    const size_t vecs = row_bytes / sizeof(Vec16);
    return static_cast<uint32_t>((vecs + pieces - 1) / pieces * sizeof(Vec16));
  }
};

class VectorMover {
 public:
  __device__ explicit VectorMover(const MoverMemory& /*memory*/) {}

  template <typename To>
  __device__ __forceinline__ void CopyToMany(const Vec16* src, int vecs, int n, To to) {
    WaveCopyRowToMany<kUnroll>(src, {0, vecs}, n, to);
  }

  // Call this after acquiring other waves' stores that CopyToMany is to read.
  __device__ __forceinline__ void Acquired() const {}
  __device__ __forceinline__ void Finish() const {}

 private:
  // Vectors of a row that a lane has in flight.
  static constexpr int kUnroll = 7;
};

class BulkMover {
 public:
  __device__ explicit BulkMover(const MoverMemory& memory)
      : ring_(memory.shared, Wave(), memory.waves, memory.piece_bytes),
        piece_bytes_(memory.piece_bytes) {}

  template <typename To>
  __device__ __forceinline__ void CopyToMany(const Vec16* src, int vecs, int n, To to) {
    const auto* from = reinterpret_cast<const char*>(src);
    const auto bytes = static_cast<uint32_t>(vecs) * static_cast<uint32_t>(sizeof(Vec16));
    Load(next_, from, 0, bytes);
    for (uint32_t done = 0; done < bytes; done += piece_bytes_, ++next_) {
      if (done + piece_bytes_ < bytes) Load(next_ + 1, from, done + piece_bytes_, bytes);
      const void* loaded = ring_.Await(next_);
      for (int i = 0; i < n; ++i) {
        BulkStore(reinterpret_cast<char*>(to(i)) + done, loaded, SizeAt(done, bytes));
      }
      BulkCommit();
    }
  }

  __device__ __forceinline__ void Acquired() const { BulkFenceGlobal(); }
  __device__ __forceinline__ void Finish() const { BulkWaitWritten<0>(); }

 private:
  __device__ uint32_t SizeAt(uint32_t done, uint32_t bytes) const {
    return bytes - done < piece_bytes_ ? bytes - done : piece_bytes_;
  }
  __device__ void Load(uint32_t piece, const char* from, uint32_t done, uint32_t bytes) {
    ring_.Load(piece, from + done, SizeAt(done, bytes));
  }

  BulkRing<MoverMemory::kSlots> ring_;
  uint32_t piece_bytes_;
  uint32_t next_ = 0;  // piece
};

}  // namespace octet::device

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_ROW_MOVER_H_
