// A thread that runs the kernels and copies of some devices. Devices and lanes never move to
// another worker.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_WORKER_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_WORKER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "machine/bounded_thread.h"
#include "machine/machine.h"
#include "scheduler/grid.h"
#include "scheduler/random.h"
#include "scheduler/starvation.h"

namespace octet::emulation {

// A wave runs, and nothing else can run on the worker's thread until it waits.
struct Turn {
  int device = 0;
  const void* kernel = nullptr;
  uint64_t ns = 0;  // so far
};

class Worker {
 public:
  Worker(Machine* machine, int index);

  // Starts the thread, which waits for Machine::ready. Returns false if there can be none.
  bool Start();
  // Before Machine::ready.
  void Adopt(Device* device);
  // Ends its sleep. Any thread may call, after what it wakes for: a kick, or a change of the
  // machine.
  void Wake();
  // BoundedThread::EndsBy.
  bool EndsBy(std::chrono::steady_clock::time_point latest) { return thread_.EndsBy(latest); }

  // Returns the turn in progress, if any. Any thread may call.
  std::optional<Turn> turn() const;

  Machine* machine() const { return machine_; }
  bool seeded() const { return seed_ != 0; }
  Random& random() { return random_; }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  bool idle() const { return idle_.load(std::memory_order_acquire); }

  // ---- for lanes of this worker

  static Worker* Current();

  // Records an event that may let other lanes continue.
  void NoteProgress() {
    progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Switches to other lanes, after the lane was taken out of `runnable` or when it yields. Returns
  // when it is the lane's turn again.
  void Leave(Lane* lane);
  // With a seed: sometimes switches to other lanes.
  void MaybePreempt(Lane* lane);
  // Likewise before a store; a late store always lets other lanes run first.
  void MaybeDelayStore(Lane* lane, MemoryScope scope);
  // Never returns.
  void LeaveForGood(Lane* lane);
  // Ends the grid with an error: its lanes do not run again, and the device keeps the error.
  void FailGrid(Grid* grid, hipError_t error, const std::string& report);
  // Likewise from a lane of the grid. The report is "<lane>: <what>", and with `describe_grid` also
  // what all lanes do. The caller must have called TsanIgnoreBegin().
  [[noreturn]] void FailFromLane(Lane* lane, hipError_t error, std::string&& what,
                                 bool describe_grid = false);

 private:
  static constexpr uint32_t kIdleBeforeYield = 64;

  static void LaneEntry(void* lane);
  void Loop();

  // Streams.
  bool StartReadyOperations(uint64_t last_sequence);
  bool IsReady(const Device& device, const Stream& stream) const;
  void StartOperation(Device* device, Stream* stream, Operation* operation);
  void StartGrid(Grid* grid);
  bool HostsAreQuiet(uint64_t* last_sequence) const;

  // Blocks.
  void StartBlocks(Grid* grid);
  bool StartHeldBlocks();
  void StartBlock(Grid* grid, uint32_t number);
  void DropBlock(Block* block);
  void DropFinishedBlocks(Grid* grid);
  void RetireFinished();
  bool RunsNothing() const;

  // Waves.
  void RunAll(bool recheck);
  void RunIfReady(Wave* wave, bool recheck);
  void WakePolling(Wave* wave, bool recheck);
  void RunWave(Wave* wave);
  void BeginTurn(const Grid& grid);
  void EndTurn() {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void PrepareLane(Wave* wave, int lane);
  int PickLane(LaneMask runnable, int after);
  void Reclaim();
  void HandleFailure();
  void ForgetAddressesIfFreed();

  // Time.
  // Sleeps until there has been a kick since `kicks_seen`, and it is for this worker, or for
  // `most`.
  void Sleep(std::chrono::nanoseconds most, uint64_t kicks_seen);
  void WaitForWork(uint64_t kicks_seen);
  void IdleRound(uint64_t kicks_seen);
  void WatchForStuck();
  void FailStuck();

  Machine* const machine_;
  const uint64_t seed_;
  std::vector<Device*> devices_;
  BoundedThread thread_;
  Context scheduler_;
  std::vector<Wave*> waves_;
  // From dropped blocks, for the next ones: so large that an allocator may map them each time.
  std::vector<std::vector<Lane>> spare_lanes_;
  bool retire_needed_ = false;
  Lane* gone_ = nullptr;  // has left for good; its stack is no longer in use

  // Set by a lane that has just left; lanes' stacks are too small for writing reports.
  struct Failure {
    Lane* lane = nullptr;
    hipError_t error = hipSuccess;
    std::string what;
    bool describe_grid = false;
  };
  Failure failure_;

  // The turn: what other threads read of it belongs together if `turns_`, which is odd during a
  // turn, is the same before and afterwards.
  std::atomic<uint64_t> turns_{0};
  std::atomic<int> turn_device_{0};
  std::atomic<const void*> turn_kernel_{nullptr};
  std::atomic<uint64_t> turn_since_ns_{0};

  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> idle_{false};
  Random random_;
  Starvation starvation_;
  std::vector<Wave*> passed_over_;  // in this round
  uint64_t kicks_seen_ = 0;
  std::atomic<bool> asleep_{false};
  std::mutex wake_mutex_;
  std::condition_variable woken_;
  bool look_at_streams_ = true;
  bool has_finished_ = false;  // an operation has finished since streams were last checked
  uint64_t next_recheck_ns_ = 0;
  uint32_t idle_rounds_ = 0;
  uint64_t idle_since_ns_ = 0;

  uint64_t watched_progress_ = 0;
  uint64_t watched_since_ns_ = 0;
  uint64_t stuck_epoch_seen_ = 0;
};

}  // namespace octet::emulation

// The running lane and its wave; the assembly in kernel_interface.h also reads them.
extern "C" {
extern constinit thread_local octet::emulation::LaneView* octet_emulation_lane;
extern constinit thread_local octet::emulation::WaveView* octet_emulation_wave;
}

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_WORKER_H_
