// Orders the plain accesses of lanes: scoped atomics, fences and barriers report here to the tool
// that watches plain accesses in this build. Most builds have no such tool, and all of this is
// empty.
//
//   ThreadSanitizer (tsan_order.cc)    reports accesses that nothing orders
//   weak memory (weak_memory.cc)       lets loads see old values until something orders them
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_MEMORY_ORDER_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_MEMORY_ORDER_H_

#include <cstddef>

#include "sanitizers/sanitizer.h"
#include "scheduler/grid.h"

namespace octet::emulation {

class Machine;

enum class Barrier { kWave, kBlock, kGrid };

inline bool IsRelease(MemoryOrder order) {
  return order == MemoryOrder::kRelease || order == MemoryOrder::kAcqRel;
}
inline bool IsAcquire(MemoryOrder order) {
  return order == MemoryOrder::kAcquire || order == MemoryOrder::kAcqRel;
}

// A read-modify-write is both a store and a load. Stores have 4, 8 or 16 bytes.
#if defined(OCTET_EMULATION_TSAN) || defined(OCTET_EMULATION_WEAK_MEMORY)
void OrderBeforeStore(Lane* lane, const AtomicAccess& access);
void OrderAfterLoad(Lane* lane, const void* address, MemoryOrder order, MemoryScope scope);
void OrderFence(Lane* lane, MemoryOrder order, MemoryScope scope);
void OrderArrive(Lane* lane, SyncPoint* point, Barrier barrier);
void OrderLeave(Lane* lane, SyncPoint* point, Barrier barrier);
#else
inline void OrderBeforeStore(Lane*, const AtomicAccess&) {}
inline void OrderAfterLoad(Lane*, const void*, MemoryOrder, MemoryScope) {}
inline void OrderFence(Lane*, MemoryOrder, MemoryScope) {}
inline void OrderArrive(Lane*, SyncPoint*, Barrier) {}
inline void OrderLeave(Lane*, SyncPoint*, Barrier) {}
#endif

// Only for weak memory.
#if defined(OCTET_EMULATION_WEAK_MEMORY)
// Call before an atomic load. Until EndStaleView() memory looks as the load may see it.
void OrderBeforeLoad(Lane* lane, const void* address, size_t bytes, const Location& where);
// Call before anything but the lane that ran last reads memory.
void EndStaleView(Machine* machine);
void OrderBlockStart(Block* block);
// The block's lanes do not run any more, and the block will be destroyed.
void OrderBlockEnd(Block* block);
// Everything that the grid has stored becomes visible. `last`: nothing runs any more.
void OrderGridEnd(Grid* grid, bool last);
// Memory was written, but not by lanes.
void OrderOverwrite(Machine* machine, const void* begin, size_t bytes);
// Memory was freed.
void OrderFree(Machine* machine);
#else
inline void OrderBeforeLoad(Lane*, const void*, size_t, const Location&) {}
inline void EndStaleView(Machine*) {}
inline void OrderBlockStart(Block*) {}
inline void OrderBlockEnd(Block*) {}
inline void OrderGridEnd(Grid*, bool) {}
inline void OrderOverwrite(Machine*, const void*, size_t) {}
inline void OrderFree(Machine*) {}
#endif

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_MEMORY_ORDER_H_
