// Tells ThreadSanitizer which scoped atomics order what. It has no scopes of its own, so each
// (address, scope) is an object of its own to it: a release at device scope is not seen by an
// acquire on another device, and the race shows. Empty without ThreadSanitizer.
//
// Together with the barriers in collectives.cc these are all the places at which memory becomes
// visible to others: a model of weak memory would stand here, too, fed with the plain accesses by
// the __tsan_read and __tsan_write calls that -fsanitize=thread puts into kernels.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_TSAN_ORDER_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_TSAN_ORDER_H_

#include "grid.h"
#include "sanitizer.h"

namespace octet::emulation {

#if defined(OCTET_EMULATION_TSAN)
void TsanBeforeStore(Lane* lane, const void* address, MemoryOrder order, MemoryScope scope);
void TsanAfterLoad(Lane* lane, const void* address, MemoryOrder order, MemoryScope scope);
void TsanFence(Lane* lane, MemoryOrder order, MemoryScope scope);
#else
inline void TsanBeforeStore(Lane*, const void*, MemoryOrder, MemoryScope) {}
inline void TsanAfterLoad(Lane*, const void*, MemoryOrder, MemoryScope) {}
inline void TsanFence(Lane*, MemoryOrder, MemoryScope) {}
#endif

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_TSAN_ORDER_H_
