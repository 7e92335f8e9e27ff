// Copies boxes of a matrix from global to a block's shared memory on emulated GPUs: when they are
// waited for and no earlier; until then a box holds poison. runtime/platform/README.md states the
// contract.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_BOX_COPY_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_BOX_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "memory/poison.h"
#include "runtime/platform/box_shape.h"

namespace octet::device {

// In shared memory.
inline constexpr size_t kBoxAlignment = 16;

using RowBoxes = BoxShape;

inline hipError_t MakeRowBoxes(const BoxShape& shape, RowBoxes* boxes) {
  *boxes = shape;
  return hipSuccess;
}

inline void PrefetchBoxes(const RowBoxes& /*boxes*/) {}

struct alignas(8) BoxBarrier {
  static constexpr int kMostBoxes = 2;  // of a round

  // A box of the round.
  struct Copy {
    char* to;
    const RowBoxes* from;
    int byte;
    int row;

    int Bytes() const { return from->box_rows * from->box_row_bytes; }
    // Lane's part: what is there, or poison.
    void Fill(bool is_there) const {
      constexpr uint32_t kWord = emulation::kPoisonWord;
      const int chunks = from->box_row_bytes / kBoxChunkBytes;
      for (int i = Lane(); i < from->box_rows * chunks; i += kWaveSize) {
        const int of_row = i / chunks;
        const int at = byte + i % chunks * kBoxChunkBytes;
        const int offset = chunks == 1 ? of_row * kBoxChunkBytes : BoxOffset(of_row, i % chunks);
        Vec16 v = {};
        if (!is_there) {
          v = {{kWord, kWord, kWord, kWord}};
        } else if (row + of_row < from->rows && at < from->row_bytes) {
          v = LoadStream(reinterpret_cast<const Vec16*>(
              static_cast<const char*>(from->data) +
              static_cast<int64_t>(row + of_row) * from->row_bytes + at));
        }
        *reinterpret_cast<Vec16*>(to + offset) = v;
      }
    }
  };

  Copy boxes[kMostBoxes];
  int count;         // of this round
  int bytes;         // that are to come in this round
  uint32_t started;  // rounds so far
  uint32_t done;
};

inline void BoxInit(BoxBarrier* barrier) {
  if (Lane() == 0) *barrier = {};
  SyncWave();
}

inline void BoxFence() {}

class BoxStarts {
 public:
  explicit BoxStarts(BoxBarrier* barrier) : barrier_(barrier) {}
  void operator()(void* to, const RowBoxes& boxes, int byte, int row) const {
    const BoxBarrier::Copy copy = {static_cast<char*>(to), &boxes, byte, row};
    copy.Fill(false);
    if (Lane() == 0) {
      barrier_->boxes[barrier_->count++] = copy;
      barrier_->bytes -= copy.Bytes();
    }
    SyncWave();
  }

 private:
  BoxBarrier* const barrier_;
};

template <typename Start>
void BoxLoad(BoxBarrier* barrier, int bytes, Start start) {
  if (Lane() == 0) {
    barrier->count = 0;
    barrier->bytes = bytes;
    ++barrier->started;
  }
  SyncWave();
  start(BoxStarts(barrier));
}

inline void BoxWait(BoxBarrier* barrier, uint32_t round) {
  SyncWave();
  // If no round was started, or one of other bytes, this never ends: the report of a stuck grid
  // names this place.
  for (uint32_t polls = 0; barrier->started <= round || barrier->bytes != 0;) Pause(++polls);
  if (barrier->done <= round) {
    for (int i = 0; i < barrier->count; ++i) barrier->boxes[i].Fill(true);
  }
  SyncWave();
  if (Lane() == 0) barrier->done = round + 1;
  SyncWave();
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_BOX_COPY_H_
