// The part of a worker that starts and retires operations of streams, grids and blocks.
#include <algorithm>
#include <cstring>
#include <utility>

#include "machine/report.h"
#include "memory/memory_order.h"
#include "scheduler/lane_operations.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

LaneMask FirstLanes(int count) { return count == 64 ? ~LaneMask{0} : LaneBit(count) - 1; }

}  // namespace

// ---- streams

// With a seed, work starts, and time passes for waiting lanes, only when the hosts have enqueued
// all their work and wait: what then runs concurrently does not depend on their timing.
// `last_sequence` is the last operation to start.
bool Worker::HostsAreQuiet(uint64_t* last_sequence) const {
  *last_sequence = machine_->last_sequence.load(std::memory_order_acquire);
  return machine_->hosts->AreQuiet();
}

// The null stream and the blocking streams alternate, in order of enqueuing.
bool Worker::IsReady(const Device& device, const Stream& stream) const {
  const Operation& operation = stream.queue.front();
  if (operation.kind == Operation::Kind::kWait &&
      !operation.completion->done.load(std::memory_order_seq_cst)) {
    return false;
  }
  if (!stream.is_null && !stream.blocking) return true;
  for (const auto& other : device.streams) {
    if (other.get() == &stream || other->queue.empty()) continue;
    const bool exclusive = stream.is_null ? other->blocking : other->is_null;
    if (exclusive && other->queue.front().sequence < operation.sequence) return false;
  }
  return true;
}

bool Worker::StartReadyOperations(uint64_t last_sequence) {
  bool started = false;
  for (Device* device : devices_) {
    bool again = true;
    while (again) {
      again = false;
      std::unique_lock lock(device->mutex);
      std::erase_if(device->streams, [device](const auto& stream) {
        if (!stream->closing || !stream->queue.empty()) return false;
        if (kTsan) device->KeepTsanResourcesLocked(stream.get());
        return true;
      });
      for (size_t i = 0; i < device->streams.size(); ++i) {
        Stream* stream = device->streams[i].get();
        if (stream->running || stream->queue.empty() || !IsReady(*device, *stream)) continue;
        if (stream->queue.front().sequence > last_sequence) continue;
        stream->running = true;
        Operation* operation = &stream->queue.front();  // stays in place: `queue` is a deque
        lock.unlock();
        StartOperation(device, stream, operation);
        lock.lock();
        started = again = true;
      }
    }
  }
  return started;
}

void Worker::StartOperation(Device* device, Stream* stream, Operation* operation) {
  NoteProgress();
  const bool skip = device->sticky_error() != hipSuccess;
  using Kind = Operation::Kind;
  if (operation->kind == Kind::kKernel && !skip) {
    stream->grid = std::make_unique<Grid>(*operation->launch);
    stream->grid->device = device;
    stream->grid->stream = stream;
    StartGrid(stream->grid.get());
    return;
  }
  if (operation->kind == Kind::kHostFunction) {
    machine_->busy_operations.fetch_add(1, std::memory_order_acq_rel);
    machine_->host_functions.Run(device, stream, operation->function, operation->argument);
    return;
  }
  {
    TsanContextScope scope(stream->tsan_context);
    TsanAcquire(&stream->tsan_sync);
    if (operation->kind == Kind::kCopy && !skip) {
      OrderOverwrite(machine_, operation->to, operation->bytes);
      std::memmove(operation->to, operation->from, operation->bytes);
    } else if (operation->kind == Kind::kFill && !skip) {
      OrderOverwrite(machine_, operation->to, operation->bytes);
      std::memset(operation->to, operation->value, operation->bytes);
    } else if (operation->kind == Kind::kRecord) {
      TsanRelease(&operation->completion->tsan_sync);
    } else if (operation->kind == Kind::kWait) {
      TsanAcquire(&operation->completion->tsan_sync);
    }
    TsanRelease(&stream->tsan_sync);
  }
  if (operation->kind == Kind::kRecord) {
    operation->completion->time_ns = machine_->Now();
    operation->completion->done.store(true, std::memory_order_seq_cst);
  }
  device->Finish(stream);
}

// ---- grids and blocks

void Worker::StartGrid(Grid* grid) {
  Device* device = grid->device;
  grid->resources = kTsan ? grid->stream->tsan_resources.get() : &device->resources;
  grid->shares_tsan_contexts = kTsan && !grid->resources->HasTsanContexts(grid->num_lanes);
  device->grids.push_back(grid);
  {
    TsanContextScope scope(grid->stream->tsan_context);
    TsanAcquire(&grid->stream->tsan_sync);
    TsanRelease(&grid->tsan_start);
  }
  // The blocks of a kernel that is not cooperative rarely wait for one another. A few at a time
  // then share the stacks and caches that many would have to themselves. Where interleavings are
  // the purpose, all that fit run.
  constexpr uint32_t kFewBlocks = 2;
  const bool few = !grid->cooperative && !seeded() && !kTsan && !kWeakMemory;
  grid->at_once = few ? std::min(kFewBlocks, grid->max_resident) : grid->max_resident;
  StartBlocks(grid);
}

void Worker::StartBlocks(Grid* grid) {
  while (grid->next_block < grid->num_blocks && grid->blocks.size() < grid->at_once) {
    StartBlock(grid, grid->next_block++);
  }
}

// Starts the blocks that would be resident on a GPU: all others wait, perhaps for these. Returns
// whether there are any.
bool Worker::StartHeldBlocks() {
  const size_t before = waves_.size();
  for (Device* device : devices_) {
    for (Grid* grid : device->grids) {
      grid->at_once = std::max(grid->at_once, grid->max_resident);
      if (!grid->failed) StartBlocks(grid);
    }
  }
  return waves_.size() != before;
}

void Worker::StartBlock(Grid* grid, uint32_t number) {
  const dim3& grid_dim = grid->grid_dim;
  const dim3& block_dim = grid->block_dim;
  auto owned = std::make_unique<Block>();
  Block* block = owned.get();
  block->grid = grid;
  block->number = number;
  block->index =
      dim3(number % grid_dim.x, number / grid_dim.x % grid_dim.y, number / grid_dim.x / grid_dim.y);
  block->block_dim = block_dim;
  block->grid_dim = grid_dim;
  const int threads = static_cast<int>(block_dim.x * block_dim.y * block_dim.z);
  const int num_waves = (threads + wave_size - 1) / wave_size;
  block->live = threads;
  block->waves = std::vector<Wave>(static_cast<size_t>(num_waves));
  if (!spare_lanes_.empty()) {
    block->lanes = std::move(spare_lanes_.back());
    spare_lanes_.pop_back();
  }
  block->lanes.resize(static_cast<size_t>(threads));
  for (int w = 0; w < num_waves; ++w) {
    Wave& wave = block->waves[static_cast<size_t>(w)];
    wave.index = w;
    wave.block = block;
    wave.num_lanes = std::min(wave_size, threads - w * wave_size);
    wave.lanes = &block->lanes[static_cast<size_t>(w) * static_cast<size_t>(wave_size)];
    wave.alive = wave.unstarted = wave.runnable = FirstLanes(wave.num_lanes);
    if (grid->shares_tsan_contexts) wave.tsan_context = grid->resources->TakeTsanContext();
    for (int l = 0; l < wave.num_lanes; ++l) {
      Lane& lane = wave.lanes[l];
      const auto thread = static_cast<unsigned>(w * wave_size + l);
      lane.thread = dim3(thread % block_dim.x, thread / block_dim.x % block_dim.y,
                         thread / block_dim.x / block_dim.y);
      lane.lane = l;
      lane.wave_index = w;
      lane.block_view = block;
      lane.wave = &wave;
    }
    waves_.push_back(&wave);
  }
  OrderBlockStart(block);
  block->shared = grid->resources->TakeShared();
  InitSharedMemory(block, grid->shared_bytes);
  grid->blocks.push_back(std::move(owned));
}

// The block's lanes have left, or will not run again.
void Worker::DropBlock(Block* block) {
  Grid* grid = block->grid;
  OrderBlockEnd(block);
  for (Wave& wave : block->waves) {
    for (int l = 0; l < wave.num_lanes; ++l) {
      Lane& lane = wave.lanes[l];
      if (lane.stack != nullptr) {
        grid->resources->ReturnStack(lane.stack, grid->resources->stack_bytes());
      }
      if (lane.context.tsan_context != nullptr && !grid->shares_tsan_contexts) {
        grid->resources->ReturnTsanContext(lane.context.tsan_context);
      }
    }
    if (wave.tsan_context != nullptr) grid->resources->ReturnTsanContext(wave.tsan_context);
  }
  grid->resources->ReturnShared(block->shared);
  block->lanes.clear();
  spare_lanes_.push_back(std::move(block->lanes));
}

// Drops the grid's finished blocks; all of them if the grid failed. ThreadSanitizer: other lanes
// get stacks and other resources only when the whole grid is done, and those lanes are ordered
// after it.
void Worker::DropFinishedBlocks(Grid* grid) {
  const auto is_done = [&](const std::unique_ptr<Block>& block) {
    return grid->failed || block->live == 0;
  };
  if (kTsan) {
    if (!std::ranges::all_of(grid->blocks, is_done)) return;
    if (!grid->failed && grid->next_block < grid->num_blocks) {
      grid->at_once += static_cast<uint32_t>(grid->blocks.size());
      return;
    }
    for (const auto& block : grid->blocks) {
      for (Lane& lane : block->lanes) {
        if (lane.waiting == Waiting::kGone || lane.stack == nullptr) continue;
        TsanContextScope scope(lane.context.tsan_context);
        TsanRelease(&grid->tsan_end);
      }
    }
  }
  std::erase_if(grid->blocks, [&](const std::unique_ptr<Block>& block) {
    if (!is_done(block)) return false;
    DropBlock(block.get());
    return true;
  });
}

void Worker::RetireFinished() {
  retire_needed_ = false;
  std::erase_if(
      waves_, [](const Wave* wave) { return wave->block->live == 0 || wave->block->grid->failed; });
  for (Device* device : devices_) {
    std::vector<Grid*> finished;
    std::erase_if(device->grids, [&](Grid* grid) {
      if (!grid->failed && !grid->block_done) return false;
      grid->block_done = false;
      DropFinishedBlocks(grid);
      if (!grid->failed) StartBlocks(grid);
      if (!grid->blocks.empty()) return false;
      finished.push_back(grid);
      return true;
    });
    for (Grid* grid : finished) {
      Stream* stream = grid->stream;
      {
        TsanContextScope scope(stream->tsan_context);
        TsanAcquire(&grid->tsan_end);
        TsanRelease(&stream->tsan_sync);
      }
      OrderGridEnd(grid, /*last=*/RunsNothing());
      NoteProgress();
      look_at_streams_ = has_finished_ = true;
      stream->device->Finish(stream);
    }
  }
}

bool Worker::RunsNothing() const {
  return std::ranges::all_of(devices_, [](const Device* device) { return device->grids.empty(); });
}

void Worker::FailGrid(Grid* grid, hipError_t error, const std::string& report) {
  machine_->AppendReport(report);
  Device* device = grid->device;
  hipError_t none = hipSuccess;
  device->error.compare_exchange_strong(none, error, std::memory_order_acq_rel);
  for (Grid* other : device->grids) other->failed = true;
  retire_needed_ = true;
}

// Nothing on the lane's stack is destroyed, so this function must release the memory of `what`.
void Worker::FailFromLane(Lane* lane, hipError_t error, std::string&& what, bool describe_grid) {
  failure_.lane = lane;
  failure_.error = error;
  failure_.what = std::move(what);
  failure_.describe_grid = describe_grid;
  TsanIgnoreEnd();
  octet_emulation_lane = nullptr;
  SwitchContext(&lane->context, &scheduler_, /*for_good=*/true);
  __builtin_unreachable();
}

void Worker::HandleFailure() {
  const Failure failure = std::exchange(failure_, {});
  Grid* grid = failure.lane->wave->block->grid;
  std::string report = DescribeLane(*failure.lane) + ": " + failure.what + "\n";
  if (failure.describe_grid) report += DescribeGrid(*grid);
  FailGrid(grid, failure.error, report);
}

}  // namespace octet::emulation
