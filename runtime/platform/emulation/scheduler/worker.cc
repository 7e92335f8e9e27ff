#include "scheduler/worker.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "machine/report.h"
#include "memory/memory_order.h"
#include "scheduler/lane_operations.h"

extern "C" {
constinit thread_local octet::emulation::LaneView* octet_emulation_lane = nullptr;
constinit thread_local octet::emulation::WaveView* octet_emulation_wave = nullptr;
}

namespace octet::emulation {
namespace {

constinit thread_local Worker* current_worker = nullptr;

constexpr uint64_t kNsPerUs = 1'000;
constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kStepNs = 200;           // virtual: one turn of a wave
constexpr uint64_t kIdleStepNs = kNsPerMs;  // virtual: one round in which nothing happened
// How long a worker sleeps without a kick: one that runs nothing, and one whose lanes all wait.
constexpr std::chrono::seconds kLongSleep{10};
constexpr uint64_t kMostIdleSleepNs = 4 * kNsPerMs;

// If nothing happens for long, time passes faster, up to 32 times: deadlines take 10 s.
constexpr uint32_t kIdleRoundsPerDoubling = 32;
constexpr uint32_t kMostDoublings = 5;

constexpr uint64_t kMostNsBetweenRechecks = 1'000 * kNsPerMs;

// How many reads a lane may do after a timed wake-up without waiting again: enough for a loop to
// reach its occasional read of the clock.
constexpr uint32_t kLooksPerRecheck = 600;

// Those that a lane which leaves for good has not left, in bytes; more than they are.
constexpr size_t kFramesOfLaneEntry = 4096;

uint64_t ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Within a few milliseconds, but costs less than a turn.
uint64_t CoarseNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

#if !defined(__x86_64__)
LaneView* CurrentLane() { return octet_emulation_lane; }
WaveView* CurrentWave() { return octet_emulation_wave; }
#endif

Worker* Worker::Current() { return current_worker; }

Worker::Worker(Machine* machine, int index)
    : machine_(machine),
      seed_(machine->config.seed),
      random_((seed_ + 1) * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(index) * 77 + 1),
      starvation_(machine->config.schedule, &random_) {}

void Worker::Adopt(Device* device) {
  device->worker = this;
  devices_.push_back(device);
}

bool Worker::Start() {
  return thread_.Start([this] {
    machine_->ready.wait(false);
    Loop();
  });
}

// ---- lanes

void Worker::LaneEntry(void* argument) {
  EnteredContext();
  Lane* lane = static_cast<Lane*>(argument);
  Grid* grid = lane->wave->block->grid;
  TsanAcquire(&grid->tsan_start);
  grid->call->Run();
  TsanRelease(&grid->tsan_end);
  current_worker->LeaveForGood(lane);  // [[noreturn]] would have AddressSanitizer clear the stack
}

void Worker::PrepareLane(Wave* wave, int index) {
  Lane& lane = wave->lanes[index];
  if ((wave->unstarted & LaneBit(index)) == 0) return;
  TsanIgnoreScope ignore;
  wave->unstarted &= ~LaneBit(index);
  NoteProgress();
  ResourcePool* resources = wave->block->grid->resources;
  lane.stack = resources->TakeStack();
  if (kTsan) {
    lane.context.tsan_context =
        wave->tsan_context != nullptr ? wave->tsan_context : resources->TakeTsanContext();
  }
  PrepareContext(&lane.context, lane.stack, resources->stack_bytes(), LaneEntry, &lane);
}

int Worker::PickLane(LaneMask runnable, int after) {
  if (seeded()) {
    for (uint64_t skip = random_.Below(static_cast<uint64_t>(std::popcount(runnable))); skip > 0;
         --skip) {
      runnable &= runnable - 1;
    }
    return LowestLane(runnable);
  }
  const LaneMask above = after >= 63 ? 0 : runnable & (~LaneMask{0} << (after + 1));
  return LowestLane(above != 0 ? above : runnable);
}

void Worker::Leave(Lane* lane) {
  Wave* wave = lane->wave;
  if (seeded()) lane->idle_steps = 0;  // a schedule ends turns by itself
  EndStaleView(machine_);
  const LaneMask runnable = wave->runnable;
  if (runnable != 0 && wave->rounds_held == 0 && !(seeded() && random_.Below(4) == 0)) {
    const int next = PickLane(runnable, lane->lane);
    Lane* to = &wave->lanes[next];
    if (to == lane) return;
    PrepareLane(wave, next);
    if (next < 63) {
      const LaneMask later = runnable & (~LaneMask{0} << (next + 1));
      if (later != 0) __builtin_prefetch(wave->lanes[LowestLane(later)].context.stack_pointer);
    }
    octet_emulation_lane = to;
    SwitchContext(&lane->context, &to->context);
  } else {
    octet_emulation_lane = nullptr;
    SwitchContext(&lane->context, &scheduler_);
  }
}

void Worker::MaybePreempt(Lane* lane) {
  if (seeded() && random_.Below(8) == 0) Leave(lane);
}

void Worker::MaybeDelayStore(Lane* lane, MemoryScope scope) {
  if (seeded() && scope == MemoryScope::kSystem && starvation_.DelaysStore(lane->wave)) {
    Leave(lane);
  } else {
    MaybePreempt(lane);
  }
}

void Worker::LeaveForGood(Lane* lane) {
  gone_ = lane;
  octet_emulation_lane = nullptr;
  SwitchContext(&lane->context, &scheduler_, /*for_good=*/true);
}

// Frees the lane that has just left for good. Other lanes may have waited only for it.
void Worker::Reclaim() {
  Lane* lane = std::exchange(gone_, nullptr);
  Wave* wave = lane->wave;
  Block* block = wave->block;
  Grid* grid = block->grid;
  const LaneMask bit = LaneBit(lane->lane);
  lane->waiting = Waiting::kGone;
  NoteProgress();
  if (!kTsan) {
    void* stack = std::exchange(lane->stack, nullptr);
    if (!grid->resources->ReturnStack(stack, kFramesOfLaneEntry)) {
      FailGrid(grid, hipErrorLaunchFailure,
               DescribeLane(*lane) +
                   ": ran over the end of its stack (OCTET_EMULATION_STACK_KB makes it larger)\n");
      return;
    }
  }
  wave->alive &= ~bit;
  wave->runnable &= ~bit;
  ++grid->lanes_gone;
  if (--block->live == 0) {
    grid->block_done = true;
    retire_needed_ = true;
  }
  if (grid->at_sync != 0) {
    FailGrid(grid, hipErrorLaunchFailure,
             DescribeLane(*lane) + ": left the kernel while others wait in this_grid().sync()\n" +
                 DescribeGrid(*grid));
    return;
  }
  LaneHasGone(this, wave);
}

// ---- waves

void Worker::WakePolling(Wave* wave, bool recheck) {
  LaneMask wake = 0;
  if (recheck) {
    wake = wave->polling;
  } else {
    for (LaneMask rest = wave->polling; rest != 0; rest &= rest - 1) {
      const int i = LowestLane(rest);
      const Lane& lane = wave->lanes[i];
      if (lane.waiting == Waiting::kAnything || ValueHasChanged(lane)) wake |= LaneBit(i);
    }
    if (seeded() && wave->polling != wake && random_.Below(16) == 0) wake = wave->polling;
  }
  if (wake == 0) return;
  for (LaneMask rest = wake; rest != 0; rest &= rest - 1) {
    Lane& lane = wave->lanes[LowestLane(rest)];
    if (lane.waiting == Waiting::kValue && ValueHasChanged(lane)) NoteProgress();
    if (recheck && lane.waiting == Waiting::kValue) lane.recheck_left = kLooksPerRecheck;
  }
  wave->polling &= ~wake;
  wave->runnable |= wake;
}

void Worker::BeginTurn(const Grid& grid) {
  std::atomic_thread_fence(std::memory_order_release);
  turn_device_.store(grid.device->id, std::memory_order_relaxed);
  turn_kernel_.store(grid.kernel, std::memory_order_relaxed);
  turn_since_ns_.store(CoarseNs(), std::memory_order_relaxed);
  turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::optional<Turn> Worker::turn() const {
  const uint64_t number = turns_.load(std::memory_order_acquire);
  if (number % 2 == 0) return std::nullopt;
  Turn turn = {.device = turn_device_.load(std::memory_order_relaxed),
               .kernel = turn_kernel_.load(std::memory_order_relaxed)};
  const uint64_t since = turn_since_ns_.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (turns_.load(std::memory_order_relaxed) != number) return std::nullopt;
  const uint64_t now = CoarseNs();
  turn.ns = now > since ? now - since : 0;
  return turn;
}

void Worker::RunWave(Wave* wave) {
  BeginTurn(*wave->block->grid);
  octet_emulation_wave = wave;
  int last = 63;
  while (wave->runnable != 0 && !wave->block->grid->failed) {
    const int next = PickLane(wave->runnable, last);
    PrepareLane(wave, next);
    octet_emulation_lane = &wave->lanes[next];
    SwitchContext(&scheduler_, &wave->lanes[next].context);
    octet_emulation_lane = nullptr;
    EndStaleView(machine_);
    last = next;
    if (gone_ != nullptr) Reclaim();
    if (failure_.lane != nullptr) HandleFailure();
    if (seeded()) {
      machine_->AdvanceVirtualTime(kStepNs);
      if (wave->rounds_held != 0 || random_.Below(8) == 0) break;
    }
  }
  octet_emulation_wave = nullptr;
  EndTurn();
}

void Worker::RunIfReady(Wave* wave, bool recheck) {
  if (wave->block->grid->failed) return;
  if (wave->polling != 0) WakePolling(wave, recheck);
  if (wave->runnable != 0) RunWave(wave);
}

void Worker::RunAll(bool recheck) {
  ForgetAddressesIfFreed();
  if (!seeded()) {
    for (Wave* wave : waves_) RunIfReady(wave, recheck);
    return;
  }
  starvation_.BeginRound(waves_);
  for (size_t i = waves_.size(); i > 1; --i) std::swap(waves_[i - 1], waves_[random_.Below(i)]);
  const uint64_t before = progress();
  passed_over_.clear();
  for (Wave* wave : waves_) {
    if (wave->polling == 0 && wave->runnable == 0) continue;
    if (starvation_.PassesOver(wave)) {
      passed_over_.push_back(wave);
    } else {
      RunIfReady(wave, recheck);
    }
  }
  if (progress() != before) return;
  for (Wave* wave : passed_over_) {
    wave->rounds_held = 0;
    RunIfReady(wave, recheck);
  }
}

void Worker::ForgetAddressesIfFreed() {
  const uint64_t epoch = machine_->memory.epoch();
  if (devices_.front()->memory_epoch != epoch) OrderFree(machine_);
  for (Device* device : devices_) {
    if (device->memory_epoch == epoch) continue;
    device->memory_epoch = epoch;
    device->recent.fill({});
    for (Wave* wave : waves_) {
      if (wave->block->grid->device == device) static_cast<WaveView&>(*wave) = WaveView{};
    }
  }
}

// ---- the loop

void Worker::Loop() {
  current_worker = this;
  AdoptThread(&scheduler_);
  TsanIgnoreScope ignore;
  while (!machine_->stopping.load(std::memory_order_acquire)) {
    const uint64_t kicks = machine_->kicks.load(std::memory_order_seq_cst);
    if (kicks != kicks_seen_) look_at_streams_ = true;
    uint64_t last_sequence = UINT64_MAX;
    const bool between_steps = idle_rounds_ > 0 || has_finished_ || waves_.empty();
    if (seeded() && between_steps && !(waves_.empty() && !look_at_streams_) &&
        !HostsAreQuiet(&last_sequence)) {
      machine_->hosts->AwaitQuiet();
      continue;
    }
    if (look_at_streams_ && (!seeded() || between_steps)) {
      kicks_seen_ = kicks;
      look_at_streams_ = has_finished_ = false;
      if (StartReadyOperations(last_sequence)) {
        look_at_streams_ = true;  // later operations of the same streams
        idle_rounds_ = 0;
      }
    }
    if (machine_->stuck_epoch.load(std::memory_order_acquire) != stuck_epoch_seen_) FailStuck();
    if (retire_needed_) RetireFinished();
    if (waves_.empty()) {
      if (!look_at_streams_) WaitForWork(kicks);
      continue;
    }
    const uint64_t before = progress();
    const uint64_t now = machine_->Now();
    const bool recheck = seeded() ? idle_rounds_ > 0 : now >= next_recheck_ns_;
    const bool timed = recheck && !seeded();
    const uint64_t cpu_before = timed ? ThreadCpuNs() : 0;
    RunAll(recheck);
    if (timed) {
      // Rechecks take at most a tenth of the time. This counts the thread's CPU time, since on a
      // busy machine the thread is preempted for longer than that. A virtual machine that stands
      // still counts as CPU time, so there is a limit, lest deadlines be noticed far too late.
      const uint64_t least = static_cast<uint64_t>(machine_->config.recheck_us) * kNsPerUs;
      next_recheck_ns_ =
          machine_->Now() +
          std::max(least, std::min(10 * (ThreadCpuNs() - cpu_before), kMostNsBetweenRechecks));
    }
    if (retire_needed_) RetireFinished();
    if (progress() != before) {
      idle_rounds_ = 0;
      idle_.store(false, std::memory_order_release);
    } else if (!StartHeldBlocks()) {
      IdleRound(kicks);
    }
  }
  // The grids that still run will never finish.
  for (Device* device : devices_) {
    for (Grid* grid : device->grids) {
      for (const auto& block : grid->blocks) DropBlock(block.get());
    }
    device->grids.clear();
  }
}

void Worker::Wake() {
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  {
    std::lock_guard lock(wake_mutex_);
  }
  woken_.notify_one();
}

void Worker::Sleep(std::chrono::nanoseconds most, uint64_t kicks) {
  asleep_.store(true, std::memory_order_seq_cst);
  {
    std::unique_lock lock(wake_mutex_);
    woken_.wait_for(lock, most, [&] {
      return machine_->stopping.load(std::memory_order_acquire) ||
             machine_->kicks.load(std::memory_order_seq_cst) != kicks ||
             machine_->stuck_epoch.load(std::memory_order_acquire) != stuck_epoch_seen_;
    });
  }
  asleep_.store(false, std::memory_order_seq_cst);
}

void Worker::WaitForWork(uint64_t kicks) {
  idle_.store(true, std::memory_order_release);
  Sleep(kLongSleep, kicks);
  idle_rounds_ = 0;
}

// Called when all lanes wait for other workers, hosts or time.
void Worker::IdleRound(uint64_t kicks) {
  const uint64_t now = WallNs();
  if (idle_rounds_++ == 0) {
    idle_since_ns_ = now;
    watched_since_ns_ = machine_->Now();
    watched_progress_ = machine_->TotalProgress();
  }
  idle_.store(true, std::memory_order_release);
  if (seeded()) {
    const uint32_t doublings = std::min(idle_rounds_ / kIdleRoundsPerDoubling, kMostDoublings);
    machine_->AdvanceVirtualTime((kIdleStepNs << doublings) / machine_->workers.size());
    if (idle_rounds_ > 4) std::this_thread::sleep_for(std::chrono::microseconds(20));
  } else if (now - idle_since_ns_ > 2 * kNsPerMs) {
    // Longer the longer nothing has happened, so that a change is noticed late by a small part.
    const uint64_t sleep_ns = std::min((now - idle_since_ns_) / 16, kMostIdleSleepNs);
    Sleep(std::chrono::nanoseconds(sleep_ns), kicks);
  } else if (idle_rounds_ % kIdleBeforeYield == 0) {
    sched_yield();
  }
  WatchForStuck();
}

void Worker::WatchForStuck() {
  const uint64_t progress = machine_->TotalProgress();
  const uint64_t now = machine_->Now();
  const bool all_idle =
      std::ranges::all_of(machine_->workers, [](const auto& worker) { return worker->idle(); });
  if (progress != watched_progress_ || !all_idle ||
      machine_->busy_operations.load(std::memory_order_acquire) != 0) {
    watched_progress_ = progress;
    watched_since_ns_ = now;
    return;
  }
  const auto timeout = static_cast<uint64_t>(machine_->config.stuck_timeout_ms) * kNsPerMs;
  if (now - watched_since_ns_ < timeout) return;
  uint64_t epoch = stuck_epoch_seen_;
  if (machine_->stuck_claims.compare_exchange_strong(epoch, epoch + 1, std::memory_order_acq_rel)) {
    machine_->AppendReport("Kernels are stuck: none has made progress for " +
                           std::to_string(machine_->config.stuck_timeout_ms) + " ms" +
                           (seeded() ? ", schedule " + ScheduleText(machine_->config) : "") + "\n");
    machine_->stuck_epoch.fetch_add(1, std::memory_order_acq_rel);
    machine_->Kick();
  }
}

void Worker::FailStuck() {
  stuck_epoch_seen_ = machine_->stuck_epoch.load(std::memory_order_acquire);
  std::string report;
  for (const Device* device : devices_) {
    for (const Grid* grid : device->grids) report += DescribeGrid(*grid);
  }
  machine_->AppendReport(report);
  // Wait for all workers' parts: a thread that sees one device's error then finds the whole report.
  machine_->stuck_reports.fetch_add(1, std::memory_order_acq_rel);
  while (machine_->stuck_reports.load(std::memory_order_acquire) <
             stuck_epoch_seen_ * machine_->workers.size() &&
         !machine_->stopping.load(std::memory_order_acquire)) {
    sched_yield();
  }
  for (Device* device : devices_) {
    if (!device->grids.empty()) FailGrid(device->grids.front(), hipErrorLaunchTimeOut, "");
  }
  idle_rounds_ = 0;
  NoteProgress();
}

}  // namespace octet::emulation
