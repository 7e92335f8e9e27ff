// Atomics, fences and polling.
#include <algorithm>
#include <cstring>

#include "memory/memory_order.h"
#include "scheduler/lane_operations.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

// How many reads of one value, and how many reads and pauses before a Pause(), a lane may do before
// it gives way, if it changes nothing.
constexpr uint32_t kLooksBeforeGivingWay = 64;
constexpr uint32_t kPausesBeforeGivingWay = 16;
constexpr uint64_t kClockReadNs = 20;  // virtual

struct Value {
  uint64_t word[2];
  bool operator==(const Value&) const = default;
};

Value Read(const void* address, int bytes) {
  Value value{{0, 0}};
  switch (bytes) {
    case 4:
      value.word[0] = __atomic_load_n(static_cast<const uint32_t*>(address), __ATOMIC_ACQUIRE);
      break;
    case 8:
      value.word[0] = __atomic_load_n(static_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE);
      break;
    default:
#if defined(__x86_64__)
      // This is one access on every processor with AVX.
      asm volatile("movdqa %1, %%xmm0\n\tmovdqu %%xmm0, %0"
                   : "=m"(value)
                   : "m"(*static_cast<const Value*>(address))
                   : "xmm0", "memory");
#else
      const auto whole =
          __atomic_load_n(static_cast<const unsigned __int128*>(address), __ATOMIC_ACQUIRE);
      std::memcpy(&value, &whole, sizeof(value));
#endif
  }
  return value;
}

void Write(void* address, int bytes, uint64_t value) {
  if (bytes == 4) {
    __atomic_store_n(static_cast<uint32_t*>(address), static_cast<uint32_t>(value),
                     __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(static_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
  }
}

Worker* BeginAccess(Lane* lane, const void* address, int bytes, const Location& where) {
  CheckAtomic(lane, address, static_cast<size_t>(bytes), where);
  Worker* worker = Worker::Current();
  EndStaleView(worker->machine());
  return worker;
}

// Lets other waves run until what the lane waits for has come, as WakePolling() says.
void WaitFor(Waiting what, Worker* worker, Lane* lane, const Location& where) {
  Wave* wave = lane->wave;
  lane->where = where;
  lane->waiting = what;
  lane->idle_steps = 0;
  wave->polling |= LaneBit(lane->lane);
  wave->runnable &= ~LaneBit(lane->lane);
  worker->Leave(lane);
  lane->waiting = Waiting::kNot;
}

// The lane continues in the next round.
void GiveWay(Worker* worker, Lane* lane, const Location& where) {
  WaitFor(Waiting::kAnything, worker, lane, where);
}

// Waits until the value at lane->poll_address differs from lane->poll_value, or it is time to read
// the clock.
void WaitForValue(Worker* worker, Lane* lane, const Location& where) {
  WaitFor(Waiting::kValue, worker, lane, where);
}

// Reads the value as the lane may see it.
Value ReadFor(Lane* lane, const void* address, int bytes, const Location& where) {
  OrderBeforeLoad(lane, address, static_cast<size_t>(bytes), where);
  const Value value = Read(address, bytes);
  EndStaleView(Worker::Current()->machine());
  return value;
}

Value Look(const void* address, int bytes, const Location& where) {
  Lane* lane = ThisLane();
  Worker* worker = BeginAccess(lane, address, bytes, where);
  worker->MaybePreempt(lane);
  Value value = ReadFor(lane, address, bytes, where);
  const Value before{{lane->poll_value[0], lane->poll_value[1]}};
  if (lane->poll_address == address && lane->poll_bytes == bytes && value == before) {
    if (lane->recheck_left > 0) {
      --lane->recheck_left;
    } else if (lane->paused || ++lane->idle_steps > kLooksBeforeGivingWay) {
      WaitForValue(worker, lane, where);
      value = ReadFor(lane, address, bytes, where);
      if (value != before) lane->recheck_left = 0;
    }
  } else if (++lane->idle_steps > 4 * kLooksBeforeGivingWay) {
    GiveWay(worker, lane, where);
    value = ReadFor(lane, address, bytes, where);
  }
  lane->poll_address = address;
  lane->poll_bytes = static_cast<uint8_t>(bytes);
  lane->poll_value[0] = value.word[0];
  lane->poll_value[1] = value.word[1];
  lane->paused = false;
  return value;
}

void NoteChange(Worker* worker, Lane* lane) {
  ForgetPoll(lane);
  lane->idle_steps = 0;
  lane->recheck_left = 0;
  worker->NoteProgress();
}

template <typename T>
T Apply(Update update, T before, T value) {
  using Signed = std::make_signed_t<T>;
  switch (update) {
    case Update::kAdd:
      return before + value;
    case Update::kExchange:
      return value;
    case Update::kMin:
      return std::min(before, value);
    case Update::kMax:
      return std::max(before, value);
    case Update::kAnd:
      return before & value;
    case Update::kOr:
      return before | value;
    case Update::kSignedMin:
      return static_cast<T>(std::min(static_cast<Signed>(before), static_cast<Signed>(value)));
    case Update::kSignedMax:
      return static_cast<T>(std::max(static_cast<Signed>(before), static_cast<Signed>(value)));
  }
  return before;
}

// Returns the previous value.
template <typename T>
T UpdateAt(Update update, T* address, T value) {
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &before, Apply(update, before, value), false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return before;
}

template <typename T>
T CompareExchangeAt(T* address, T expected, T desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_ACQ_REL,
                              __ATOMIC_ACQUIRE);
  return expected;
}

// Wraps every read-modify-write: `change` does it and returns {previous value, changed}.
template <typename Change>
uint64_t ReadModifyWrite(const AtomicAccess& access, Change change) {
  Lane* lane = ThisLane();
  Worker* worker = BeginAccess(lane, access.address, access.bytes, access.where);
  worker->MaybePreempt(lane);
  OrderBeforeStore(lane, access);
  const auto [before, changed] = change();
  OrderAfterLoad(lane, access.address, access.order, access.scope);
  if (changed) {
    NoteChange(worker, lane);
  } else if (++lane->idle_steps > kLooksBeforeGivingWay) {
    GiveWay(worker, lane, access.where);
  }
  return before;
}

struct Changed {
  uint64_t before;
  bool changed;
};

}  // namespace

bool ValueHasChanged(const Lane& lane) {
  return Read(lane.poll_address, lane.poll_bytes) !=
         Value{{lane.poll_value[0], lane.poll_value[1]}};
}

uint64_t AtomicLoad(const void* address, int bytes, MemoryOrder order, MemoryScope scope,
                    Location where) {
  const Value value = Look(address, bytes, where);
  OrderAfterLoad(ThisLane(), address, order, scope);
  return value.word[0];
}

void AtomicLoad16(const void* address, void* value, Location where) {
  const Value read = Look(address, 16, where);
  OrderAfterLoad(ThisLane(), address, MemoryOrder::kRelaxed, MemoryScope::kSystem);
  std::memcpy(value, &read, sizeof(read));
}

void AtomicStore(const AtomicAccess& access, uint64_t value) {
  Lane* lane = ThisLane();
  Worker* worker = BeginAccess(lane, access.address, access.bytes, access.where);
  worker->MaybeDelayStore(lane, access.scope);
  OrderBeforeStore(lane, access);
  Write(access.address, access.bytes, value);
  NoteChange(worker, lane);
}

void AtomicStore16(void* address, const void* value, Location where) {
  Lane* lane = ThisLane();
  Worker* worker = BeginAccess(lane, address, 16, where);
  worker->MaybeDelayStore(lane, MemoryScope::kSystem);
  OrderBeforeStore(lane, {address, 16, MemoryOrder::kRelaxed, MemoryScope::kSystem, where});
#if defined(__x86_64__)
  asm volatile("movdqu %1, %%xmm0\n\tmovdqa %%xmm0, %0"
               : "=m"(*static_cast<Value*>(address))
               : "m"(*static_cast<const Value*>(value))
               : "xmm0", "memory");
#else
  unsigned __int128 whole;
  std::memcpy(&whole, value, sizeof(whole));
  __atomic_store_n(static_cast<unsigned __int128*>(address), whole, __ATOMIC_RELEASE);
#endif
  NoteChange(worker, lane);
}

uint64_t AtomicUpdate(const AtomicAccess& access, Update update, uint64_t value) {
  return ReadModifyWrite(access, [&]() -> Changed {
    if (access.bytes == 4) {
      const auto value32 = static_cast<uint32_t>(value);
      const uint32_t before = UpdateAt(update, static_cast<uint32_t*>(access.address), value32);
      return {before, Apply(update, before, value32) != before};
    }
    const uint64_t before = UpdateAt(update, static_cast<uint64_t*>(access.address), value);
    return {before, Apply(update, before, value) != before};
  });
}

uint64_t AtomicCompareExchange(const AtomicAccess& access, uint64_t expected, uint64_t desired) {
  return ReadModifyWrite(access, [&]() -> Changed {
    if (access.bytes == 4) {
      const auto expected32 = static_cast<uint32_t>(expected);
      const auto desired32 = static_cast<uint32_t>(desired);
      const uint32_t before =
          CompareExchangeAt(static_cast<uint32_t*>(access.address), expected32, desired32);
      return {before, before == expected32 && desired32 != expected32};
    }
    const uint64_t before =
        CompareExchangeAt(static_cast<uint64_t*>(access.address), expected, desired);
    return {before, before == expected && desired != expected};
  });
}

void Fence(MemoryOrder order, MemoryScope scope) {
  Lane* lane = ThisLane();
  ForgetPoll(lane);
  OrderFence(lane, order, scope);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void PauseLane(Location where) {
  Lane* lane = ThisLane();
  lane->paused = true;
  if (lane->recheck_left > 0) {
    --lane->recheck_left;
  } else if (++lane->idle_steps > kPausesBeforeGivingWay) {
    GiveWay(Worker::Current(), lane, where);
  }
}

void NoteAwaitedRank(int rank) { ThisLane()->awaited_rank = rank; }

uint64_t ReadClock() {
  constexpr uint64_t kOffsetBetweenDevicesNs = 1'000'000'007;  // devices have different clocks
  Worker* worker = Worker::Current();
  Lane* lane = ThisLane();
  Machine* machine = worker->machine();
  if (worker->seeded()) machine->AdvanceVirtualTime(kClockReadNs);
  if (lane->recheck_left == 0 && ++lane->idle_steps > kLooksBeforeGivingWay) {
    GiveWay(worker, lane, lane->where);
  }
  return machine->Now() +
         static_cast<uint64_t>(lane->wave->block->grid->device->id) * kOffsetBetweenDevicesNs;
}

}  // namespace octet::emulation
