#include <mutex>
#include <string>

#include "emulation.h"

#if defined(OCTET_EMULATION_WEAK_MEMORY)

#include <algorithm>
#include <bit>
#include <cstring>

#include "machine/machine.h"
#include "machine/report.h"
#include "machine/symbols.h"
#include "memory/memory_order.h"
#include "memory/weak_memory.h"
#include "scheduler/lane_operations.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

// The number of loads, out of 8 that may see an old value, that do.
constexpr uint64_t kStaleOf8 = 7;

// Outlives machines: a test may read it after it has replaced its machine.
struct StaleReadLog {
  std::mutex mutex;
  uint64_t count = 0;
  std::string text;
};
StaleReadLog& Log() {
  static auto* const kLog = new StaleReadLog;  // never destroyed: read when the process ends
  return *kLog;
}

uint16_t MaskOf(size_t first, size_t bytes) {
  return static_cast<uint16_t>(((1U << bytes) - 1) << first);
}

void Append(std::vector<uint32_t>* to, std::vector<uint32_t>* from) {
  to->insert(to->end(), from->begin(), from->end());
  from->clear();
}

bool IsSamePlace(const Access& a, const Access& b) {
  return a.code == b.code && a.where.line() == b.where.line() &&
         a.where.file_name() == b.where.file_name();
}

std::string DescribePlace(const Access& access) {
  return access.is_atomic() ? "by an atomic " + DescribeWhere(access.where)
                            : "in " + CodePlace(access.code);
}

// Calls f(unit, mask) for the units that the bytes lie in.
template <typename F>
void ForUnits(const void* address, size_t bytes, uintptr_t unit_bytes, F f) {
  auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = at + bytes;
  while (at < end) {
    const uintptr_t unit = at / unit_bytes * unit_bytes;
    const uintptr_t next = std::min(end, unit + unit_bytes);
    f(unit, MaskOf(at - unit, next - at));
    at = next;
  }
}

}  // namespace

// ---- visibility

bool WeakMemory::IsModelled(const Lane* lane, const void* address) const {
  const int arena = memory_->ArenaOf(address);
  if (arena != kNoArena) return arena != kHostArena;  // the host's own accesses are unknown
  const Block* block = lane->wave->block;
  return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(block->shared) <
         block->shared_used;
}

Way WeakMemory::NearestWay(const Lane* lane, const Store& store) const {
  if (store.wave == lane->wave->writer) return kByWaveBarrier;
  const Writer& other = writers_[store.wave];
  const Writer& mine = writers_[lane->wave->writer];
  if (other.block == mine.block) return kByBlockBarrier;
  if (other.grid == mine.grid) return kByGridBarrier;
  return other.device == mine.device ? kByDeviceRelease : kBySystemRelease;
}

bool WeakMemory::IsVisible(const Lane* lane, const Store& store) const {
  const Way nearest = NearestWay(lane, store);
  if (nearest == kByWaveBarrier && store.lane == lane->lane) return true;
  const uint32_t since[kNumWays] = {store.time, store.time,        store.released[0],
                                    store.time, store.released[1], store.released[2]};
  for (size_t way = nearest; way < kNumWays; ++way) {
    if (since[way] < lane->memory.known.until[way]) return true;
  }
  return false;
}

// Returns true for the lane's own store if nothing has made it visible to other lanes.
bool WeakMemory::IsPrivate(const Lane* lane, const Store& store) const {
  const auto& until = lane->memory.known.until;
  return store.wave == lane->wave->writer && store.lane == lane->lane &&
         std::ranges::all_of(store.released, [](uint32_t time) { return time == kNever; }) &&
         store.time >= until[kByWaveBarrier] && store.time >= until[kByBlockBarrier] &&
         store.time >= until[kByGridBarrier];
}

// ---- plain accesses

void WeakMemory::BeforeLoad(Lane* lane, const void* address, size_t bytes, const Access& access) {
  EndView();
  if (!IsModelled(lane, address)) return;
  ForUnits(address, bytes, kUnit,
           [&](uintptr_t unit, uint16_t mask) { LoadUnit(lane, unit, mask, access); });
}

void WeakMemory::BeforeStore(Lane* lane, void* address, size_t bytes, const Access& access) {
  EndView();
  if (!IsModelled(lane, address)) return;
  ForUnits(address, bytes, kUnit,
           [&](uintptr_t unit, uint16_t mask) { StoreUnit(lane, unit, mask, access); });
}

void WeakMemory::LoadUnit(Lane* lane, uintptr_t unit, uint16_t mask, const Access& access) {
  const auto found = newest_.find(unit);
  if (found == newest_.end()) return;
  View view = {reinterpret_cast<uint8_t*>(unit), {}};
  uint8_t old[kUnit];
  std::memcpy(view.newest, view.unit, kUnit);
  std::memcpy(old, view.unit, kUnit);
  // Starting with the newest store, undo each store that the lane need not see, except in bytes
  // where it sees a newer store.
  const Store* unseen = nullptr;
  for (uint32_t i = found->second; i != kNone && mask != 0; i = stores_[i].older) {
    const Store& store = stores_[i];
    if ((store.mask & mask) == 0) continue;
    if (IsVisible(lane, store) || (access.is_atomic() && store.access.is_atomic())) {
      mask = static_cast<uint16_t>(mask & ~store.mask);
      continue;
    }
    for (uint32_t rest = store.mask & mask; rest != 0; rest &= rest - 1) {
      const int byte = std::countr_zero(rest);
      old[byte] = store.before[byte];
      if (old[byte] != view.newest[byte] && unseen == nullptr) unseen = &store;
    }
  }
  if (std::memcmp(old, view.newest, kUnit) == 0) return;
  if (Worker::Current()->random().Below(8) >= kStaleOf8) return;
  std::memcpy(view.unit, old, kUnit);
  views_.push_back(view);
  Note(lane, *unseen, view.unit, access);
}

void WeakMemory::EndView() {
  for (const View& view : views_) std::memcpy(view.unit, view.newest, kUnit);
  views_.clear();
}

void WeakMemory::StoreUnit(Lane* lane, uintptr_t unit, uint16_t mask, const Access& access) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(unit);
  uint32_t& newest = newest_.try_emplace(unit, kNone).first->second;
  if (newest == kNone || !IsPrivate(lane, stores_[newest]) ||
      stores_[newest].access.is_atomic() != access.is_atomic()) {
    uint32_t index = static_cast<uint32_t>(stores_.size());
    if (free_.empty()) {
      stores_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    stores_[index] = {.older = newest,
                      .wave = lane->wave->writer,
                      .time = now_,
                      .released = {kNever, kNever, kNever},
                      .access = access,
                      .mask = 0,
                      .lane = static_cast<uint8_t>(lane->lane),
                      .listed = true,
                      .before = {}};
    newest = index;
    lane->memory.stores.push_back(index);
    uint32_t last = index;
    for (int i = 1; i < kMaxStores && last != kNone; ++i) last = stores_[last].older;
    if (last != kNone) DropFrom(std::exchange(stores_[last].older, kNone));
  }
  Store& store = stores_[newest];
  for (uint32_t rest = mask & ~store.mask; rest != 0; rest &= rest - 1) {
    const int byte = std::countr_zero(rest);
    store.before[byte] = bytes[byte];
  }
  store.mask |= mask;
}

// Removes a store and all older ones of its unit from their list.
void WeakMemory::DropFrom(uint32_t index) {
  while (index != kNone) {
    Store& store = stores_[index];
    store.listed = false;
    if (store.released[2] != kNever) free_.push_back(index);
    index = store.older;
  }
}

void WeakMemory::Forget(const void* begin, size_t bytes) {
  if (newest_.empty()) return;
  ForUnits(begin, bytes, kUnit, [&](uintptr_t unit, uint16_t) {
    const auto found = newest_.find(unit);
    if (found == newest_.end()) return;
    DropFrom(found->second);
    newest_.erase(found);
  });
}

void WeakMemory::ForgetFreed() {
  absl::erase_if(newest_, [&](const auto& entry) {
    const auto* unit = reinterpret_cast<const void*>(entry.first);
    Allocation found;
    if (memory_->ArenaOf(unit) == kNoArena || memory_->Find(unit, &found)) return false;
    DropFrom(entry.second);
    return true;
  });
}

// ---- order

// Makes those stores in `from` that the lane sees visible at `scope`. Moves them to `to`, or drops
// them if all lanes can then see them (`to` null).
void WeakMemory::Publish(const Lane* lane, MemoryScope scope, std::vector<uint32_t>* from,
                         std::vector<uint32_t>* to) {
  std::erase_if(*from, [&](uint32_t index) {
    Store& store = stores_[index];
    if (!IsVisible(lane, store)) return false;
    const bool same_block = NearestWay(lane, store) <= kByBlockBarrier;
    for (int s = same_block ? 0 : 1; s <= static_cast<int>(scope); ++s) {
      store.released[s] = std::min(store.released[s], now_);
    }
    if (from == to) return false;
    if (to != nullptr) {
      to->push_back(index);
    } else if (!store.listed) {
      free_.push_back(index);
    }
    return true;
  });
}

void WeakMemory::Release(Lane* lane, MemoryScope scope) {
  Wave* wave = lane->wave;
  Block* block = wave->block;
  StoreBuffer& device = DeviceOf(lane);
  ++now_;
  std::vector<uint32_t>* to = scope == MemoryScope::kBlock    ? &block->memory.stores
                              : scope == MemoryScope::kDevice ? &device.stores
                                                              : nullptr;
  Publish(lane, scope, &lane->memory.stores, to);
  Publish(lane, scope, &wave->memory.stores, to);
  Publish(lane, scope, &block->memory.stores, to);
  block->memory.known.Merge(lane->memory.known, kByBlockBarrier);
  if (scope == MemoryScope::kBlock) return;
  Publish(lane, scope, &device.stores, to);
  device.known.Merge(lane->memory.known, kByDeviceRelease);
}

void WeakMemory::Acquire(Lane* lane, MemoryScope scope) {
  Known& known = lane->memory.known;
  known.until[kByBlockRelease] = now_ + 1;
  known.Merge(lane->wave->block->memory.known, kByBlockBarrier);
  if (scope == MemoryScope::kBlock) return;
  known.until[kByDeviceRelease] = now_ + 1;
  known.Merge(DeviceOf(lane).known, kByDeviceRelease);
  if (scope == MemoryScope::kSystem) known.until[kBySystemRelease] = now_ + 1;
}

void WeakMemory::Arrive(Lane* lane, Known* point, Way way) {
  Wave* wave = lane->wave;
  Block* block = wave->block;
  Append(&wave->memory.stores, &lane->memory.stores);
  if (way != kByWaveBarrier) Append(&block->memory.stores, &wave->memory.stores);
  if (way == kByGridBarrier) Append(&DeviceOf(lane).stores, &block->memory.stores);
  point->Merge(lane->memory.known, way);
  point->until[way] = ++now_;
}

void WeakMemory::Leave(Lane* lane, const Known& point, Way way) {
  lane->memory.known.Merge(point, way);
}

// ---- begin and end

StoreBuffer& WeakMemory::DeviceOf(const Lane* lane) {
  return devices_[static_cast<size_t>(lane->wave->block->grid->device->id)];
}

void WeakMemory::StartBlock(Block* block) {
  ++num_blocks_;
  const Grid* grid = block->grid;
  for (Wave& wave : block->waves) {
    wave.writer = static_cast<uint32_t>(writers_.size());
    writers_.push_back(
        {grid, num_blocks_, grid->device->id, grid->kernel, block->number, wave.index});
    for (int i = 0; i < wave.num_lanes; ++i) Acquire(&wave.lanes[i], MemoryScope::kSystem);
  }
}

void WeakMemory::EndBlock(Block* block) {
  auto& device = devices_[static_cast<size_t>(block->grid->device->id)].stores;
  for (Lane& lane : block->lanes) Append(&device, &lane.memory.stores);
  for (Wave& wave : block->waves) Append(&device, &wave.memory.stores);
  Append(&device, &block->memory.stores);
}

void WeakMemory::EndGrid(const Grid* grid, bool last) {
  WriteReports();
  if (last) {
    newest_.clear();
    stores_.clear();
    free_.clear();
    writers_.clear();
    devices_.fill({});
    now_ = 1;
    return;
  }
  ++now_;
  std::erase_if(devices_[static_cast<size_t>(grid->device->id)].stores, [&](uint32_t index) {
    Store& store = stores_[index];
    if (writers_[store.wave].grid != grid) return false;
    for (uint32_t& time : store.released) time = std::min(time, now_);
    if (!store.listed) free_.push_back(index);
    return true;
  });
}

// ---- reports

// Only records the load: lanes' stacks are too small for writing reports.
void WeakMemory::Note(const Lane* lane, const Store& store, const void* address,
                      const Access& access) {
  ++num_stale_;
  const auto is_same = [&](const StaleLoad& other) {
    return IsSamePlace(other.access, access) && IsSamePlace(other.store.access, store.access);
  };
  if (stale_.size() >= kMaxReports || std::ranges::any_of(stale_, is_same)) return;
  const bool shared = memory_->ArenaOf(address) == kNoArena;
  stale_.push_back({store, NearestWay(lane, store), lane->wave->writer, lane->lane, address, access,
                    shared ? static_cast<const char*>(address) - lane->wave->block->shared : -1});
}

std::string WeakMemory::DescribeLane(uint32_t wave, int lane) const {
  const Writer& writer = writers_[wave];
  return "device " + std::to_string(writer.device) + ", kernel " + FunctionName(writer.kernel) +
         ", block " + std::to_string(writer.block_number) + ", wave " +
         std::to_string(writer.wave) + ", lane " + std::to_string(lane);
}

std::string WeakMemory::Describe(const StaleLoad& load) const {
  static constexpr const char* kScopes[3] = {"block", "device", "system"};
  // The smallest scope that contains both lanes, and the barrier that would suffice.
  const int scope = load.nearest <= kByBlockBarrier ? 0 : load.nearest < kBySystemRelease ? 1 : 2;
  const char* barrier = load.nearest == kByWaveBarrier    ? "SyncWave"
                        : load.nearest == kByBlockBarrier ? "__syncthreads"
                        : load.nearest == kByGridBarrier  ? "this_grid().sync()"
                                                          : nullptr;
  std::string text = DescribeLane(load.wave, load.lane) + ": old value read from ";
  text += load.shared_offset >= 0 ? "shared memory, byte " + std::to_string(load.shared_offset)
                                  : memory_->Describe(load.address);
  text += " " + DescribePlace(load.access) + "\n  stored by " +
          DescribeLane(load.store.wave, load.store.lane) + " " + DescribePlace(load.store.access) +
          "\n  ";
  if (load.store.released[scope] != kNever) {
    text += std::string("released, but not acquired at ") + kScopes[scope] + " scope since";
  } else {
    text += std::string("not released at ") + kScopes[scope] + " scope";
    if (scope > 0 && load.store.released[scope - 1] != kNever) {
      text += std::string(", only at ") + kScopes[scope - 1] + " scope";
    }
  }
  if (barrier != nullptr) text += std::string(", nor ordered by ") + barrier;
  return text + "\n";
}

void WeakMemory::WriteReports() {
  if (num_stale_ == 0) return;
  StaleReadLog& log = Log();
  std::lock_guard lock(log.mutex);
  if (log.count == 0) {
    for (const StaleLoad& load : stale_) log.text += Describe(load);
  }
  log.count += std::exchange(num_stale_, 0);
  stale_.clear();
}

StaleReads TakeStaleReads() {
  StaleReadLog& log = Log();
  std::lock_guard lock(log.mutex);
  return {std::exchange(log.count, 0), std::exchange(log.text, {})};
}

// ---- memory_order.h

namespace {

WeakMemory& MemoryOf(const Lane* lane) {
  return lane->wave->block->grid->device->machine->weak_memory;
}

Way WayOf(Barrier barrier) {
  return barrier == Barrier::kWave    ? kByWaveBarrier
         : barrier == Barrier::kBlock ? kByBlockBarrier
                                      : kByGridBarrier;
}

}  // namespace

void OrderBeforeLoad(Lane* lane, const void* address, size_t bytes, const Location& where) {
  MemoryOf(lane).BeforeLoad(lane, address, bytes, {.where = where});
}

void OrderBeforeStore(Lane* lane, const AtomicAccess& access) {
  // Releases the value itself, too: a lane that has acquired it may then read it with a plain load.
  MemoryOf(lane).BeforeStore(lane, access.address, static_cast<size_t>(access.bytes),
                             {.where = access.where});
  if (IsRelease(access.order)) MemoryOf(lane).Release(lane, access.scope);
}

void OrderAfterLoad(Lane* lane, const void*, MemoryOrder order, MemoryScope scope) {
  if (IsAcquire(order)) MemoryOf(lane).Acquire(lane, scope);
}

void OrderFence(Lane* lane, MemoryOrder order, MemoryScope scope) {
  if (IsRelease(order)) MemoryOf(lane).Release(lane, scope);
  if (IsAcquire(order)) MemoryOf(lane).Acquire(lane, scope);
}

void OrderArrive(Lane* lane, SyncPoint* point, Barrier barrier) {
  MemoryOf(lane).Arrive(lane, point, WayOf(barrier));
}

void OrderLeave(Lane* lane, SyncPoint* point, Barrier barrier) {
  MemoryOf(lane).Leave(lane, *point, WayOf(barrier));
}

void EndStaleView(Machine* machine) { machine->weak_memory.EndView(); }
void OrderBlockStart(Block* block) { block->grid->device->machine->weak_memory.StartBlock(block); }
void OrderBlockEnd(Block* block) { block->grid->device->machine->weak_memory.EndBlock(block); }
void OrderGridEnd(Grid* grid, bool last) { grid->device->machine->weak_memory.EndGrid(grid, last); }
void OrderOverwrite(Machine* machine, const void* begin, size_t bytes) {
  machine->weak_memory.Forget(begin, bytes);
}
void OrderFree(Machine* machine) { machine->weak_memory.ForgetFreed(); }

}  // namespace octet::emulation

#else

namespace octet::emulation {

StaleReads TakeStaleReads() { return {}; }

}  // namespace octet::emulation

#endif  // OCTET_EMULATION_WEAK_MEMORY
