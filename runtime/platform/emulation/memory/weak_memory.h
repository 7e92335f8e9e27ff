// A model of weak memory: a lane's stores become visible to other lanes only through operations
// that order them, as on a machine without cache coherence. Only in builds with
// OCTET_SANITIZE=weak-memory, in which kernels report their plain accesses (weak_memory_hooks.cc).
//
// Memory always holds the newest values. In addition, each unit of 16 bytes has a list of its last
// stores with the bytes from before each. A plain load by a lane that is not ordered after some of
// these stores usually gets the bytes from before them, for this load only. Atomic loads see the
// newest value stored atomically, and treat plain stores as plain loads do; read-modify-writes see
// the newest value.
//
// A store becomes visible
//   to its wave                        by SyncWave
//   to its block, its grid             by their barriers
//   to its block, its device, all      by a release of at least that scope, by the lane itself or
//                                      one to which the store was visible, and a later acquire of
//                                      at least that scope
//   to all that starts later           by the end of its grid
// A release makes visible all that precedes it, and an acquire sees all that was released before
// it, at any address: as with caches that are written back and invalidated. Hence a few times
// suffice to say what a lane is certain to see.
//
// Two mistakes are not modelled; ThreadSanitizer (missing order) or a schedule (wrong results)
// finds them: loads that take effect late, such as from a buffer that is returned too early, and
// which of two stores to the same bytes comes last. Pinned host memory is not modelled either,
// since the host's accesses to it are unknown.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_WEAK_MEMORY_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_WEAK_MEMORY_H_

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "hip/kernel_interface.h"
#include "machine/config.h"

namespace octet::emulation {

class Memory;
struct Block;
struct Grid;
struct Lane;
struct Wave;

// The ways in which other lanes' stores become visible, from near to far.
enum Way : uint8_t {
  kByWaveBarrier,
  kByBlockBarrier,
  kByBlockRelease,
  kByGridBarrier,
  kByDeviceRelease,
  kBySystemRelease,
  kNumWays,
};

// For each way, the time (exclusive) up to which a lane is certain to see what became visible in
// it.
struct Known {
  std::array<uint32_t, kNumWays> until = {};

  // Merges in what `other` knows for the ways from `first` on; nearer ways concern another wave or
  // block.
  void Merge(const Known& other, Way first) {
    for (size_t way = first; way < kNumWays; ++way) {
      if (other.until[way] > until[way]) until[way] = other.until[way];
    }
  }
};

// Stores not yet visible to all, and what releases have made known; one for each lane, wave, ...
struct StoreBuffer {
  std::vector<uint32_t> stores;
  Known known;
};

// The source of an access: its code or place.
struct Access {
  const void* code = nullptr;  // of a plain access
  Location where = {};         // of an atomic
  bool is_atomic() const { return code == nullptr; }
};

class WeakMemory {
 public:
  explicit WeakMemory(const Memory* memory) : memory_(memory) {}

  // Call before an access by the running lane. After BeforeLoad memory looks as the lane may see
  // it.
  void BeforeLoad(Lane* lane, const void* address, size_t bytes, const Access& access);
  void BeforeStore(Lane* lane, void* address, size_t bytes, const Access& access);
  void EndView();

  void Release(Lane* lane, MemoryScope scope);
  void Acquire(Lane* lane, MemoryScope scope);
  void Arrive(Lane* lane, Known* point, Way way);
  void Leave(Lane* lane, const Known& point, Way way);

  void StartBlock(Block* block);
  void EndBlock(Block* block);
  void EndGrid(const Grid* grid, bool last);
  void Forget(const void* begin, size_t bytes);
  void ForgetFreed();

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  static constexpr uintptr_t kUnit = 16;  // bytes that share a list of stores
  static constexpr int kMaxStores = 24;   // per unit; older stores count as visible
  static constexpr size_t kMaxReports = 16;

  // A wave that has run since the machine was last idle.
  struct Writer {
    const Grid* grid;  // for comparisons only: it may be destroyed
    uint64_t block;    // unique
    int device;
    const void* kernel;
    uint32_t block_number;
    int wave;
  };
  struct Store {
    uint32_t older;  // the next older store of the same unit
    uint32_t wave;   // index of the writer
    uint32_t time;
    std::array<uint32_t, 3> released;  // when, by scope
    Access access;
    uint16_t mask;  // bytes of the unit
    uint8_t lane;
    bool listed;  // in its unit's list
    uint8_t before[kUnit];
  };
  // A load that saw an old value.
  struct StaleLoad {
    Store store;
    Way nearest;
    uint32_t wave;
    int lane;
    const void* address;
    Access access;
    ptrdiff_t shared_offset;  // in the block's shared memory, -1: elsewhere
  };

  StoreBuffer& DeviceOf(const Lane* lane);
  bool IsModelled(const Lane* lane, const void* address) const;
  bool IsVisible(const Lane* lane, const Store& store) const;
  Way NearestWay(const Lane* lane, const Store& store) const;
  bool IsPrivate(const Lane* lane, const Store& store) const;
  void LoadUnit(Lane* lane, uintptr_t unit, uint16_t mask, const Access& access);
  void StoreUnit(Lane* lane, uintptr_t unit, uint16_t mask, const Access& access);
  void Publish(const Lane* lane, MemoryScope scope, std::vector<uint32_t>* from,
               std::vector<uint32_t>* to);
  void DropFrom(uint32_t index);
  void Note(const Lane* lane, const Store& store, const void* address, const Access& access);
  void WriteReports();
  std::string DescribeLane(uint32_t wave, int lane) const;
  std::string Describe(const StaleLoad& load) const;

  const Memory* const memory_;
  uint32_t now_ = 1;
  absl::flat_hash_map<uintptr_t, uint32_t> newest_;  // store of each unit
  std::vector<Store> stores_;
  std::vector<uint32_t> free_;
  std::vector<Writer> writers_;
  uint64_t num_blocks_ = 0;
  std::array<StoreBuffer, kMaxDevices> devices_;

  // A unit where the running lane sees old values, and the newest ones.
  struct View {
    uint8_t* unit;
    uint8_t newest[kUnit];
  };
  std::vector<View> views_;
  std::vector<StaleLoad> stale_;
  uint64_t num_stale_ = 0;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_WEAK_MEMORY_H_
