#include "memory/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "sanitizers/sanitizer.h"

namespace octet::emulation {
namespace {

constexpr size_t kRedZone = kPage;  // before each allocation, hence also after each
// Freed addresses are handed out again after so many others: late enough that a stale pointer
// seldom meets new memory, soon enough that pages which are in memory are used again.
constexpr size_t kLap = 16 << 20;
constexpr size_t kPoisonEdge = 1 << 20;  // of freed memory: poisoning costs an eighth of it

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

bool IsMapped(const void* address) {
  const uintptr_t page = reinterpret_cast<uintptr_t>(address) & ~(kPage - 1);
  unsigned char resident;
  return mincore(Pointer(page), kPage, &resident) == 0 || errno != ENOMEM;
}

}  // namespace

Memory::Memory(const Config& config) : capacity_(config.memory_bytes) {
  void* range =
      mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    std::fprintf(stderr, "emulation: no room for the devices' address range: %s\n",
                 std::strerror(errno));
    return;  // every allocation then returns hipErrorOutOfMemory
  }
  reserved_ = range;
  base_ = RoundUp(reinterpret_cast<uintptr_t>(range), PoisonedPages::kUnit);
  for (int i = 0; i < kNumArenas; ++i) {
    Arena& arena = arenas_[i];
    arena.begin = arena.cursor = arena.frontier = base_ + static_cast<uintptr_t>(i) * kArenaBytes;
  }
}

Memory::~Memory() {
  if (base_ == 0) return;
  for (const Arena& arena : arenas_) {
    for (const auto& [begin, region] : arena.live) AsanUnpoison(Pointer(begin), region.bytes);
    AsanUnpoison(Pointer(arena.begin), arena.frontier - arena.begin);
  }
  munmap(reserved_, kReservedBytes);
}

// Returns the lowest address, at least `from`, with `span` free bytes; 0 if there is none.
uintptr_t Memory::FindRoom(const Arena& arena, uintptr_t from, size_t span) const {
  auto next = arena.live.upper_bound(from);
  if (next != arena.live.begin()) {
    const auto& [begin, region] = *std::prev(next);
    from = std::max(from, begin + RoundUp(region.bytes, kPage));
  }
  for (; next != arena.live.end(); ++next) {
    if (from + span <= next->first - kRedZone) return from;
    from = next->first + RoundUp(next->second.bytes, kPage);
  }
  return from + span <= arena.begin + kArenaBytes ? from : 0;
}

bool Memory::ExtendTo(uintptr_t end, Arena& arena) const {
  if (end <= arena.frontier) return true;
  const size_t bytes = RoundUp(end - arena.frontier, PoisonedPages::kUnit);
  if (!pages_.Map(arena.frontier, bytes)) return false;
  arena.frontier += bytes;
  return true;
}

hipError_t Memory::Allocate(int arena_index, size_t bytes, unsigned flags, void** pointer) {
  if (base_ == 0 || bytes > capacity_) return hipErrorOutOfMemory;
  std::lock_guard lock(lock_);
  Arena& arena = arenas_[arena_index];
  if (arena.used + bytes > capacity_) return hipErrorOutOfMemory;
  TsanAcquire(&arena.tsan_sync);
  const size_t span = kRedZone + RoundUp(bytes, kPage);
  if (arena.cursor - arena.begin > arena.used + kLap) arena.cursor = arena.begin;
  uintptr_t room = FindRoom(arena, arena.cursor, span);
  if (room == 0) room = FindRoom(arena, arena.begin, span);
  if (room == 0) return hipErrorOutOfMemory;
  const uintptr_t end = room + span;
  if (!ExtendTo(end, arena)) return hipErrorOutOfMemory;
  pages_.Fill(room, span);
  const uintptr_t begin = room + kRedZone;
  arena.live.emplace(begin, Region{bytes, flags});
  arena.cursor = end;
  arena.used += bytes;
  AsanPoison(Pointer(room), kRedZone);
  AsanUnpoison(Pointer(begin), bytes);
  AsanPoison(Pointer(begin + bytes), end - begin - bytes);
  *pointer = Pointer(begin);
  return hipSuccess;
}

hipError_t Memory::Free(const void* pointer) {
  const int index = ArenaOf(pointer);
  if (index == kNoArena) return hipErrorInvalidValue;
  std::lock_guard lock(lock_);
  Arena& arena = arenas_[index];
  const auto it = arena.live.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == arena.live.end()) return hipErrorInvalidValue;
  const uintptr_t begin = it->first;
  const size_t bytes = it->second.bytes;
  TsanRelease(&arena.tsan_sync);
  arena.live.erase(it);
  arena.used -= bytes;
  AdvanceEpoch();
  {
    const TsanIgnoreScope ignore;  // the device's memory is nobody's now
    AsanUnpoison(Pointer(begin), RoundUp(bytes, kPage));
    pages_.Reset(begin, RoundUp(bytes, kPage));
  }
  AsanPoison(Pointer(begin + bytes), RoundUp(bytes, kPage) - bytes);
  const size_t edge = std::min(bytes, kPoisonEdge);
  AsanPoison(Pointer(begin), edge);
  AsanPoison(Pointer(begin + bytes - edge), edge);
  return hipSuccess;
}

bool Memory::FindLocked(uintptr_t address, Allocation* found) const {
  const int index = ArenaOf(Pointer(address));
  if (index == kNoArena) return false;
  const Arena& arena = arenas_[index];
  auto it = arena.live.upper_bound(address);
  if (it == arena.live.begin()) return false;
  --it;
  if (address - it->first >= std::max<size_t>(it->second.bytes, 1)) return false;
  *found = {it->first, it->second.bytes, index, it->second.flags};
  return true;
}

bool Memory::Find(const void* address, Allocation* found) const {
  std::lock_guard lock(lock_);
  return FindLocked(reinterpret_cast<uintptr_t>(address), found);
}

bool Memory::IsAccessible(const void* address, size_t bytes) const {
  if (address == nullptr) return false;
  if (bytes == 0) return true;
  if (ArenaOf(address) != kNoArena) {
    Allocation found;
    if (!Find(address, &found)) return false;
    return bytes <= found.bytes - (reinterpret_cast<uintptr_t>(address) - found.begin);
  }
  return IsMapped(address) && IsMapped(static_cast<const char*>(address) + bytes - 1);
}

size_t Memory::used(int arena) const {
  std::lock_guard lock(lock_);
  return arenas_[arena].used;
}

std::string Memory::Describe(const void* address) const {
  const auto bits = reinterpret_cast<uintptr_t>(address);
  const int index = ArenaOf(address);
  char text[160];
  if (index == kNoArena) {
    std::snprintf(text, sizeof(text), "%p (no device memory)", address);
    return text;
  }
  const std::string owner =
      index == kHostArena ? "pinned host memory" : "device " + std::to_string(index);
  std::lock_guard lock(lock_);
  Allocation found;
  if (FindLocked(bits, &found)) {
    std::snprintf(text, sizeof(text), "%p (%s, byte %zu of the %zu allocated at %p)", address,
                  owner.c_str(), static_cast<size_t>(bits - found.begin), found.bytes,
                  static_cast<void*>(Pointer(found.begin)));
    return text;
  }
  const Arena& arena = arenas_[index];
  auto it = arena.live.upper_bound(bits);
  if (it == arena.live.begin()) {
    std::snprintf(text, sizeof(text), "%p (%s, not allocated)", address, owner.c_str());
  } else {
    --it;
    std::snprintf(text, sizeof(text), "%p (%s, not allocated: %zu bytes past the %zu at %p)",
                  address, owner.c_str(), static_cast<size_t>(bits - it->first - it->second.bytes),
                  it->second.bytes, static_cast<void*>(Pointer(it->first)));
  }
  return text;
}

}  // namespace octet::emulation
