// A running kernel: grid, blocks, waves, lanes, and what each of them waits for. Only the worker
// thread that runs the grid's device accesses it.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_GRID_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_GRID_H_

#include <hip/hip_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hip/kernel_interface.h"
#include "machine/config.h"
#include "scheduler/fiber.h"
#include "scheduler/resource_pool.h"
#if defined(OCTET_EMULATION_WEAK_MEMORY)
#include "memory/weak_memory.h"
#endif

namespace octet::emulation {

class Device;
using Stream = ::ihipStream_t;
struct Block;
struct Grid;
struct Wave;

using LaneMask = uint64_t;

// A barrier passes this from arriving lanes to leaving lanes: for memory_order.h.
#if defined(OCTET_EMULATION_WEAK_MEMORY)
using SyncPoint = Known;
#else
using SyncPoint = char;
#endif

inline LaneMask LaneBit(int lane) { return LaneMask{1} << lane; }
inline int LowestLane(LaneMask lanes) { return std::countr_zero(lanes); }

// The event that a lane waits for. Lane::where is the place.
enum class Waiting : uint8_t {
  kNot,       // running or runnable
  kWave,      // a wave collective
  kBlock,     // __syncthreads
  kGrid,      // this_grid().sync()
  kValue,     // the value at Lane::poll_address to change
  kAnything,  // polls several addresses, or only the clock: runs again in the next round
  kGone,      // has left the kernel
};

struct Lane : LaneView {
  Context context;
  Wave* wave = nullptr;
  void* stack = nullptr;

  Waiting waiting = Waiting::kNot;
  bool paused = false;  // Pause() since the last read of poll_address
  uint8_t poll_bytes = 0;
  int awaited_rank = -1;  // that the lane polls for; -1: none is known
  Location where;
  const void* poll_address = nullptr;  // the last atomic load, if no other operation has followed
  uint64_t poll_value[2] = {0, 0};
  // Reads and pauses since the lane last changed something or gave way. Other lanes of its wave may
  // run in between: a wave that polls until a ballot says that all is there must give way, too.
  uint32_t idle_steps = 0;
  uint32_t recheck_left = 0;  // reads allowed without waiting after a timed wake-up

#if defined(OCTET_EMULATION_TSAN)
  // The number of loads that a lane does before it acquires; older ones count as not acquired.
  static constexpr int kRecentLoads = 64;
  const void* relaxed_loads[kRecentLoads] = {};  // since the last acquire fence
  uint32_t next_relaxed_load = 0;
  int released_scope = -1;  // of the last release fence, -1: none
#elif defined(OCTET_EMULATION_WEAK_MEMORY)
  StoreBuffer memory;
#endif
};

// The scheduling unit.
struct Wave : WaveView {
  LaneMask alive = 0;
  LaneMask unstarted = 0;
  LaneMask runnable = 0;
  LaneMask polling = 0;  // kValue and kAnything
  LaneMask arrived = 0;  // at a wave collective
  LaneMask at_block = 0;
  LaneMask at_grid = 0;

  // The values of the collective in progress (parity of `generation`), and of the previous one,
  // which some lanes may not have read yet.
  uint32_t generation = 0;
  uint64_t values[2][kMaxWaveSize];
  LaneMask members[2] = {0, 0};
  LaneMask nonzero[2] = {0, 0};  // the members whose values are not 0
  const char* collective = "";
  Location collective_where;

  int index = 0;
  int num_lanes = 0;
  bool has_begun = false;    // under a schedule that delays it
  uint32_t rounds_held = 0;  // for which the wave is still passed over
  Block* block = nullptr;
  Lane* lanes = nullptr;
  void* tsan_context = nullptr;  // shared by the lanes if ThreadSanitizer has too few contexts
  SyncPoint sync_point[2] = {};
#if defined(OCTET_EMULATION_WEAK_MEMORY)
  StoreBuffer memory;
  uint32_t writer = 0;  // WeakMemory's number for the wave
#endif
};

struct Block : BlockView {
  Grid* grid = nullptr;
  uint32_t number = 0;  // within the grid, x fastest
  int live = 0;         // lanes
  int at_barrier = 0;   // lanes
  uint32_t barrier_generation = 0;
  Location barrier_where;
  std::vector<Wave> waves;
  std::vector<Lane> lanes;

  // Shared memory: first the dynamic part, then each static object at its first use.
  char* shared = nullptr;
  size_t shared_used = 0;   // including the gaps between objects
  size_t shared_bytes = 0;  // excluding them
  std::vector<std::pair<const void*, void*>> statics;

  SyncPoint sync_point[2] = {};
#if defined(OCTET_EMULATION_WEAK_MEMORY)
  StoreBuffer memory;
#endif
};

// The parameters of a launch. A grid is made from it at its start; a graph may launch it again.
struct GridLaunch {
  const void* kernel = nullptr;
  std::shared_ptr<const KernelCall> call;
  dim3 grid_dim;
  dim3 block_dim;
  size_t shared_bytes = 0;
  bool cooperative = false;
  uint32_t num_blocks = 0;
  uint64_t num_lanes = 0;
  uint32_t max_resident = 0;  // blocks
};

struct Grid : GridLaunch {
  Device* device = nullptr;
  Stream* stream = nullptr;
  ResourcePool* resources = nullptr;
  uint32_t next_block = 0;                     // the first block that has not started
  uint32_t at_once = 0;                        // blocks; max_resident at most
  std::vector<std::unique_ptr<Block>> blocks;  // resident
  uint64_t lanes_gone = 0;
  uint64_t at_sync = 0;  // lanes in this_grid().sync()
  uint32_t sync_generation = 0;
  Location sync_where;
  bool block_done = false;  // some block has no lanes left

  bool failed = false;  // ends without running further
  bool shares_tsan_contexts = false;
  char tsan_start = 0;
  char tsan_end = 0;
  SyncPoint sync_point[2] = {};
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_GRID_H_
