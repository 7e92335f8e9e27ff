// Copies rows between global memory and a block's shared memory on emulated GPUs.
// runtime/platform/README.md states the contract.
//
// A load happens as late as the contract allows, when it is waited for; until then its buffer holds
// poison. A store happens at once.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_BULK_COPY_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_BULK_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "memory/poison.h"

namespace octet::device {

inline constexpr bool kBulkIsAsync = true;
inline constexpr size_t kMaxBulkSharedBytes = 60 * 1024;

struct alignas(8) BulkBarrier {
  void* to;
  const void* from;
  uint32_t bytes;
  uint32_t started;  // loads so far
  uint32_t done;
};

inline void BulkInit(BulkBarrier* barrier) {
  if (Lane() == 0) *barrier = {};
  SyncWave();
}

inline void BulkLoad(void* to, const void* from, uint32_t bytes, BulkBarrier* barrier) {
  SyncWave();  // no lane may still use the buffer's previous contents
  constexpr uint32_t kWord = emulation::kPoisonWord;
  constexpr Vec16 kNotYet = {{kWord, kWord, kWord, kWord}};
  for (uint32_t i = static_cast<uint32_t>(Lane()); i < bytes / sizeof(Vec16);
       i += static_cast<uint32_t>(kWaveSize)) {
    static_cast<Vec16*>(to)[i] = kNotYet;
  }
  if (Lane() == 0) {
    barrier->to = to;
    barrier->from = from;
    barrier->bytes = bytes;
    StoreRelaxed<Scope::kBlock>(&barrier->started, barrier->started + 1);
  }
  SyncWave();
}

inline void BulkWaitLoad(BulkBarrier* barrier, uint32_t round) {
  // If no load was started, this never ends: the report of a stuck grid names this place.
  for (uint32_t polls = 0; LoadRelaxed<Scope::kBlock>(&barrier->started) <= round;) Pause(++polls);
  SyncWave();
  if (barrier->done <= round) {
    for (uint32_t i = static_cast<uint32_t>(Lane()); i < barrier->bytes / sizeof(Vec16);
         i += static_cast<uint32_t>(kWaveSize)) {
      static_cast<Vec16*>(barrier->to)[i] =
          LoadStream(static_cast<const Vec16*>(barrier->from) + i);
    }
  }
  SyncWave();
  if (Lane() == 0) barrier->done = round + 1;
  SyncWave();
}

inline void BulkStore(void* to, const void* from, uint32_t bytes) {
  for (uint32_t i = static_cast<uint32_t>(Lane()); i < bytes / sizeof(Vec16);
       i += static_cast<uint32_t>(kWaveSize)) {
    StoreStream(static_cast<Vec16*>(to) + i, static_cast<const Vec16*>(from)[i]);
  }
}

inline void BulkCommit() {}

template <int groups>
inline void BulkWaitRead() {
  SyncWave();
}

template <int groups>
inline void BulkWaitWritten() {
  SyncWave();
}

inline void BulkFenceShared() { SyncWave(); }

inline void BulkFenceGlobal() { SyncWave(); }

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_BULK_COPY_H_
