// The memory of all devices, and pinned host memory: one address range, cut into arenas, one for
// each device and one for the host, so that an address identifies its owner. Pages are committed
// when first written; those of large memory are returned when it is freed, others are kept for what
// comes to lie there. Fresh and freed memory reads as poison (poison.h).
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_MEMORY_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_MEMORY_H_

#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "machine/config.h"
#include "memory/poisoned_pages.h"
#include "scheduler/spin_lock.h"

namespace octet::emulation {

inline constexpr int kHostArena = kMaxDevices;  // pinned host memory
inline constexpr int kNumArenas = kMaxDevices + 1;
inline constexpr int kNoArena = -1;

struct Allocation {
  uintptr_t begin = 0;
  size_t bytes = 0;
  int arena = kNoArena;
  unsigned flags = 0;
};

// Thread-safe.
class Memory {
 public:
  explicit Memory(const Config& config);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  hipError_t Allocate(int arena, size_t bytes, unsigned flags, void** pointer);
  // Returns hipErrorInvalidValue unless `pointer` is the start of a live allocation.
  hipError_t Free(const void* pointer);

  // Returns the arena that the address belongs to, whether allocated or not.
  int ArenaOf(const void* address) const {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - base_;
    return offset < kNumArenas * kArenaBytes ? static_cast<int>(offset >> kArenaShift) : kNoArena;
  }
  // Finds the live allocation that contains the address.
  bool Find(const void* address, Allocation* found) const;
  // Returns whether a copy may access [address, address + bytes): within one live allocation, or
  // mapped memory of the process outside of the arenas.
  bool IsAccessible(const void* address, size_t bytes) const;

  size_t capacity() const { return capacity_; }
  size_t used(int arena) const;

  // Changes whenever allocated memory ceases to be allocated.
  uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  void AdvanceEpoch() { epoch_.fetch_add(1, std::memory_order_acq_rel); }

  // Returns, for example, "device 3, byte 40 of an allocation of 4096 at 0x...".
  std::string Describe(const void* address) const;

 private:
  static constexpr int kArenaShift = 36;
  static constexpr uintptr_t kArenaBytes = uintptr_t{1} << kArenaShift;
  static constexpr size_t kReservedBytes = kNumArenas * kArenaBytes + PoisonedPages::kUnit;

  struct Region {
    size_t bytes;
    unsigned flags;
  };
  struct Arena {
    std::map<uintptr_t, Region> live;  // by begin
    uintptr_t begin = 0;
    uintptr_t cursor = 0;    // where the search for room starts: freed addresses are reused late
    uintptr_t frontier = 0;  // addresses below are readable and writable
    size_t used = 0;
    char tsan_sync = 0;  // orders allocations after all earlier frees
  };

  bool FindLocked(uintptr_t address, Allocation* found) const;
  uintptr_t FindRoom(const Arena& arena, uintptr_t from, size_t span) const;
  // Makes the arena readable and writable up to `end`. Returns false if there is no memory.
  bool ExtendTo(uintptr_t end, Arena& arena) const;

  const size_t capacity_;
  void* reserved_ = nullptr;  // the address range, including space before and after the arenas
  uintptr_t base_ = 0;        // of the first arena; 0: there are none
  mutable SpinLock lock_;
  PoisonedPages pages_;
  Arena arenas_[kNumArenas];
  std::atomic<uint64_t> epoch_{1};
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_MEMORY_H_
