// Tells ThreadSanitizer what scoped atomics order. ThreadSanitizer has no scopes, so each (address,
// scope) is a separate object to it: an acquire on another device does not see a release at device
// scope, and the race is reported.
#include "memory/memory_order.h"

#if defined(OCTET_EMULATION_TSAN)

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "machine/machine.h"

namespace octet::emulation {
namespace {

// Addresses that stand for (address, scope). Two pairs that share one can only hide a race. At
// system scope the address stands for itself, since host code orders memory there by its own
// atomics.
constexpr int kObjectBits = 22;
constexpr size_t kObjectBytes = 8;

char* Objects() {
  static char* const objects =
      static_cast<char*>(mmap(nullptr, kObjectBytes << kObjectBits, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return objects;
}

void* Object(const void* address, uint64_t domain) {
  uint64_t hash = (reinterpret_cast<uintptr_t>(address) >> 2) * 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 29) ^ domain) * 0xbf58476d1ce4e5b9ULL;
  return Objects() + (hash >> (64 - kObjectBits)) * kObjectBytes;
}

// Calls `f` with the object of each scope up to `scope`: lanes within the smaller scope are also
// within the larger one.
template <typename F>
void ForScopes(const Lane& lane, const void* address, MemoryScope scope, F f) {
  const Block* block = lane.wave->block;
  f(Object(address, reinterpret_cast<uintptr_t>(block)));
  if (scope == MemoryScope::kBlock) return;
  f(Object(address, 1 + static_cast<uint64_t>(block->grid->device->id)));
  if (scope == MemoryScope::kSystem) f(const_cast<void*>(address));
}

}  // namespace

void OrderBeforeStore(Lane* lane, const AtomicAccess& access) {
  int released = lane->released_scope;
  if (IsRelease(access.order)) released = std::max(released, static_cast<int>(access.scope));
  if (released < 0) return;
  ForScopes(*lane, access.address, std::min(static_cast<MemoryScope>(released), access.scope),
            TsanRelease);
}

void OrderAfterLoad(Lane* lane, const void* address, MemoryOrder order, MemoryScope scope) {
  if (IsAcquire(order)) {
    ForScopes(*lane, address, scope, TsanAcquire);
    return;
  }
  for (const void* recent : lane->relaxed_loads) {
    if (recent == address) return;
  }
  lane->relaxed_loads[lane->next_relaxed_load++ % Lane::kRecentLoads] = address;
}

void OrderFence(Lane* lane, MemoryOrder order, MemoryScope scope) {
  if (IsRelease(order)) {
    lane->released_scope = std::max(lane->released_scope, static_cast<int>(scope));
  }
  if (!IsAcquire(order)) return;
  for (const void*& recent : lane->relaxed_loads) {
    if (recent != nullptr) ForScopes(*lane, recent, scope, TsanAcquire);
    recent = nullptr;
  }
}

void OrderArrive(Lane*, SyncPoint* point, Barrier) { TsanRelease(point); }
void OrderLeave(Lane*, SyncPoint* point, Barrier) { TsanAcquire(point); }

}  // namespace octet::emulation

#endif  // OCTET_EMULATION_TSAN
