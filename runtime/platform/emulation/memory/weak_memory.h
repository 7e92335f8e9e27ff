// A model of weak memory: what lanes store becomes visible to other lanes only by what orders it,
// as on a machine whose caches do not keep each other up to date. Only in builds with
// OCTET_SANITIZE=weak-memory, in which kernels report their plain accesses (weak_memory_hooks.cc).
//
// Memory always holds the newest values. Beside it, each 16 bytes have a list of their last stores
// with the bytes from before. A plain load by a lane to which some of these stores are not ordered
// is usually shown the bytes from before, for just that load. Atomic loads see the newest that was
// stored atomically, and plain stores like plain loads do; read-modify-writes see the newest.
//
// A store becomes visible
//   to its wave                        by SyncWave
//   to its block, its grid             by their barriers
//   to its block, its device, all      by a release of at least that scope, by the lane itself or
//                                      one to which the store was visible, and an acquire of at
//                                      least that scope that comes later
//   to whatever starts later           by the end of its grid
// A release makes visible all that precedes it, and an acquire sees all that has been released by
// then, at whatever address: as with caches that are written back and emptied. Hence no lane needs
// more than a few times to tell what it is certain to see.
//
// Not modelled, and found by ThreadSanitizer (missing order) or a schedule (wrong results): loads
// that take effect late, as from a buffer that is given back too early, and which of two stores to
// the same bytes comes last. Nor is pinned host memory: what the host does there is not known.
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

// The ways in which stores of others become visible, from near to far.
enum Way : uint8_t {
  kByWaveBarrier,
  kByBlockBarrier,
  kByBlockRelease,
  kByGridBarrier,
  kByDeviceRelease,
  kBySystemRelease,
  kNumWays,
};

// Up to when, exclusively, a lane is certain to see what became visible in each way.
struct Known {
  std::array<uint32_t, kNumWays> until = {};

  // Takes over what `other` knows, from that way on: what is nearer means another wave or block.
  void Merge(const Known& other, Way first) {
    for (size_t way = first; way < kNumWays; ++way) {
      if (other.until[way] > until[way]) until[way] = other.until[way];
    }
  }
};

// Stores that are not visible to all, and what releases have made known: of a lane, a wave, ...
struct StoreBuffer {
  std::vector<uint32_t> stores;
  Known known;
};

// What a lane does to memory, and where.
struct Access {
  const void* code = nullptr;  // of a plain access
  Location where = {};         // of an atomic
  bool is_atomic() const { return code == nullptr; }
};

class WeakMemory {
 public:
  explicit WeakMemory(const Memory* memory) : memory_(memory) {}

  // An access by the lane that runs is about to happen. A load: memory now looks as it may see it.
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
  static constexpr int kMaxStores = 24;   // of a unit; older ones count as visible
  static constexpr size_t kMaxReports = 16;

  // Waves that have run since the machine was idle.
  struct Writer {
    const Grid* grid;  // to compare only: it may be gone
    uint64_t block;    // unlike all others
    int device;
    const void* kernel;
    uint32_t block_number;
    int wave;
  };
  struct Store {
    uint32_t older;  // of the same unit
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

  // What the lane that runs sees instead of the newest values, and these.
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
