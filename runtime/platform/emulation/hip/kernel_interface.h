// The interface between kernels and the emulation: the position of a lane, and the operations at
// which it may have to wait. hip_runtime.h and device_ops.h wrap it under HIP's and Octet's names.
// Kernels are compiled separately from the emulation (other flags, other sanitizers), so only what
// must be fast is inline here.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_KERNEL_INTERFACE_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_KERNEL_INTERFACE_H_

#include <hip/hip_runtime_api.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace octet::emulation {

using Location = std::source_location;

extern int wave_size;  // 32 or 64

// ---- position of a lane

struct BlockView {
  dim3 index;
  dim3 block_dim;
  dim3 grid_dim;
};

struct LaneView {
  dim3 thread;
  int lane = 0;  // within its wave
  int wave_index = 0;
  const BlockView* block_view = nullptr;
};

// Addresses that a wave may access without a lookup: those of the allocation that it accessed last.
struct AccessRange {
  uintptr_t begin = 0;
  uintptr_t last = 0;      // the last byte is begin + last
  uintptr_t last_vec = 0;  // the last 16 bytes are at begin + 16 * last_vec
};

struct WaveView {
  AccessRange read{1, 0, 0};  // 1 is no multiple of 16: refuses every vector
  AccessRange write{1, 0, 0};
  AccessRange atomic{1, 0, 0};
};

// Both are constant for the life of a lane, as seen from that lane, so the compiler may keep them
// in registers. Kernels are compiled with emulated TLS, hence the assembly for what is a plain
// thread_local in the emulation.
#if defined(__x86_64__)
inline LaneView* CurrentLane() {
  LaneView* lane;
  asm("movq octet_emulation_lane@gottpoff(%%rip), %0\n\tmovq %%fs:(%0), %0" : "=r"(lane));
  return lane;
}
inline WaveView* CurrentWave() {
  WaveView* wave;
  asm("movq octet_emulation_wave@gottpoff(%%rip), %0\n\tmovq %%fs:(%0), %0" : "=r"(wave));
  return wave;
}
#else
LaneView* CurrentLane();
WaveView* CurrentWave();
#endif

// ---- access checks

// Called when a wave accesses memory outside of its range: finds the new range, or ends the grid
// with an error and does not return.
void MissRead16(const void* address, Location where);
void MissWrite16(const void* address, Location where);

// 16-byte accesses, aligned. The rotation moves the bits of a misaligned address to the top.
inline void CheckRead16(const void* address, Location where) {
  const AccessRange& range = CurrentWave()->read;
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - range.begin;
  if (std::rotr(offset, 4) > range.last_vec) [[unlikely]] {
    MissRead16(address, where);
  }
}
inline void CheckWrite16(void* address, Location where) {
  const AccessRange& range = CurrentWave()->write;
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - range.begin;
  if (std::rotr(offset, 4) > range.last_vec) [[unlikely]] {
    MissWrite16(address, where);
  }
}

// ---- atomics

enum class MemoryScope { kBlock, kDevice, kSystem };
enum class MemoryOrder { kRelaxed, kAcquire, kRelease, kAcqRel };
enum class Update { kAdd, kExchange, kMin, kMax, kAnd, kOr, kSignedMin, kSignedMax };

// An access that may write.
struct AtomicAccess {
  void* address;
  int bytes;  // 4 or 8; 16 where a function says so
  MemoryOrder order;
  MemoryScope scope;
  Location where;
};

// `bytes` is 4 or 8.
uint64_t AtomicLoad(const void* address, int bytes, MemoryOrder order, MemoryScope scope,
                    Location where);
void AtomicStore(const AtomicAccess& access, uint64_t value);
// These return the previous value.
uint64_t AtomicUpdate(const AtomicAccess& access, Update update, uint64_t value);
uint64_t AtomicCompareExchange(const AtomicAccess& access, uint64_t expected, uint64_t desired);
void AtomicLoad16(const void* address, void* value, Location where);
void AtomicStore16(void* address, const void* value, Location where);
void Fence(MemoryOrder order, MemoryScope scope);

// ---- collectives

void SyncBlock(Location where);
void SyncGrid(Location where);
void SyncWave(Location where);
// Returns the value that lane `source` of the wave passed; the lane's own if there is no such lane.
uint64_t ShuffleFrom(uint64_t value, int source, Location where);
uint64_t BallotOf(bool predicate, Location where);

// ---- other operations

void PauseLane(Location where);
void NoteAwaitedRank(int rank);  // -1: none
uint64_t ReadClock();
void* DynamicShared();

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_KERNEL_INTERFACE_H_
