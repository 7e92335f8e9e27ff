// The functions that -fsanitize=thread calls before each plain access of a kernel, implemented for
// weak memory instead of by ThreadSanitizer's library. Host code in .hip files also calls them, to
// no effect.
#if defined(OCTET_EMULATION_WEAK_MEMORY)

#include <algorithm>
#include <cstring>

#include "machine/machine.h"
#include "scheduler/lane_operations.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

constexpr size_t kPiece = 16;

// With a seed, lanes also switch between plain accesses.
constexpr uint64_t kAccessesPerSwitch = 64;

WeakMemory* MemoryFor(Lane* lane) {
  Worker* worker = Worker::Current();
  WeakMemory* memory = &worker->machine()->weak_memory;
  if (worker->seeded() && worker->random().Below(kAccessesPerSwitch) == 0) {
    memory->EndView();
    worker->Leave(lane);
  }
  return memory;
}

void Load(void* address, size_t bytes, const void* code) {
  Lane* lane = ThisLane();
  if (lane != nullptr) MemoryFor(lane)->BeforeLoad(lane, address, bytes, {.code = code});
}

void Store(void* address, size_t bytes, const void* code) {
  Lane* lane = ThisLane();
  if (lane != nullptr) MemoryFor(lane)->BeforeStore(lane, address, bytes, {.code = code});
}

void Copy(char* to, const char* from, size_t bytes, const void* code) {
  Lane* lane = ThisLane();
  if (lane == nullptr) {
    std::memmove(to, from, bytes);
    return;
  }
  // Overlapping copies start at the end that is not overwritten.
  const bool backwards = to > from;
  WeakMemory* memory = MemoryFor(lane);
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(kPiece, bytes - done);
    const size_t at = backwards ? bytes - done - piece : done;
    char value[kPiece];
    memory->BeforeLoad(lane, from + at, piece, {.code = code});
    std::memcpy(value, from + at, piece);
    memory->BeforeStore(lane, to + at, piece, {.code = code});
    std::memcpy(to + at, value, piece);
    done += piece;
  }
}

}  // namespace
}  // namespace octet::emulation

using octet::emulation::Copy;
using octet::emulation::Load;
using octet::emulation::Store;

// NOLINTBEGIN(bugprone-reserved-identifier): the compiler names them.
extern "C" {

#define OCTET_TSAN_HOOKS(bytes)                                                               \
  void __tsan_read##bytes(void* p) { Load(p, bytes, __builtin_return_address(0)); }           \
  void __tsan_write##bytes(void* p) { Store(p, bytes, __builtin_return_address(0)); }         \
  void __tsan_unaligned_read##bytes(void* p) { Load(p, bytes, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##bytes(void* p) { Store(p, bytes, __builtin_return_address(0)); }

OCTET_TSAN_HOOKS(1)
OCTET_TSAN_HOOKS(2)
OCTET_TSAN_HOOKS(4)
OCTET_TSAN_HOOKS(8)
OCTET_TSAN_HOOKS(16)

void __tsan_read_range(void* p, size_t bytes) { Load(p, bytes, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t bytes) { Store(p, bytes, __builtin_return_address(0)); }

void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  Copy(static_cast<char*>(to), static_cast<const char*>(from), bytes, __builtin_return_address(0));
  return to;
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  Copy(static_cast<char*>(to), static_cast<const char*>(from), bytes, __builtin_return_address(0));
  return to;
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  Store(to, bytes, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)

#endif  // OCTET_EMULATION_WEAK_MEMORY
