// Wave collectives, __syncthreads and this_grid().sync().
#include <cstring>
#include <string>

#include "machine/report.h"
#include "memory/memory_order.h"
#include "scheduler/lane_operations.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

bool SamePlace(const Location& a, const Location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

[[noreturn]] void FailDivergent(Lane* lane, const char* what, const Location& where,
                                const char* other_what, const Location& other_where) {
  TsanIgnoreBegin();
  std::string report = "diverges: is at ";
  report += what;
  report += " " + DescribeWhere(where) + " while others wait at ";
  report += other_what;
  report += " " + DescribeWhere(other_where);
  Worker::Current()->FailFromLane(lane, hipErrorLaunchFailure, std::move(report),
                                  /*describe_grid=*/true);
}

// Called when the lane has just begun to wait at `what`. Fails the grid if all lanes of its wave
// now wait, but not for the same thing: none of them could ever continue.
void CheckWaveDivergence(Lane* lane, const char* what, const Location& where) {
  const Wave& wave = *lane->wave;
  const int kinds = (wave.arrived != 0) + (wave.at_block != 0) + (wave.at_grid != 0);
  if (kinds < 2 || (wave.arrived | wave.at_block | wave.at_grid) != wave.alive) return;
  const LaneMask others = lane->waiting == Waiting::kWave    ? wave.at_block | wave.at_grid
                          : lane->waiting == Waiting::kBlock ? wave.arrived | wave.at_grid
                                                             : wave.arrived | wave.at_block;
  const Lane& other = wave.lanes[LowestLane(others)];
  const char* other_what = other.waiting == Waiting::kWave    ? wave.collective
                           : other.waiting == Waiting::kBlock ? "__syncthreads"
                                                              : "this_grid().sync()";
  FailDivergent(lane, what, where, other_what, other.where);
}

void WaitForOthers(Worker* worker, Lane* lane) {
  lane->wave->runnable &= ~LaneBit(lane->lane);
  worker->Leave(lane);
  lane->waiting = Waiting::kNot;
}

void CompleteWave(Worker* worker, Wave* wave) {
  wave->members[wave->generation & 1] = wave->arrived;
  ++wave->generation;
  wave->runnable |= wave->arrived;
  wave->arrived = 0;
  // A wave that polls until a ballot says that all is there makes no progress by that. With a seed,
  // a turn may end at any collective, so that a wave would seem to wait that computes.
  if (worker->seeded()) worker->NoteProgress();
}

void CompleteBlock(Worker* worker, Block* block) {
  block->at_barrier = 0;
  ++block->barrier_generation;
  for (Wave& wave : block->waves) {
    wave.runnable |= wave.at_block;
    wave.at_block = 0;
  }
  worker->NoteProgress();
}

// Waits until all live lanes of the wave have arrived, and returns the parity under which their
// values are stored.
uint32_t MeetWave(uint64_t value, const char* what, const Location& where) {
  Worker* worker = Worker::Current();
  Lane* lane = ThisLane();
  Wave* wave = lane->wave;
  const uint32_t parity = wave->generation & 1;
  wave->values[parity][lane->lane] = value;
  if (wave->arrived == 0) {
    wave->nonzero[parity] = 0;
    wave->collective = what;
    wave->collective_where = where;
  } else if (wave->collective != what || !SamePlace(wave->collective_where, where)) {
    FailDivergent(lane, what, where, wave->collective, wave->collective_where);
  }
  if (value != 0) wave->nonzero[parity] |= LaneBit(lane->lane);
  ForgetPoll(lane);
  lane->where = where;
  wave->arrived |= LaneBit(lane->lane);
  if (wave->arrived == wave->alive) {
    CompleteWave(worker, wave);
  } else {
    lane->waiting = Waiting::kWave;
    CheckWaveDivergence(lane, what, where);
    WaitForOthers(worker, lane);
  }
  return parity;
}

}  // namespace

void LaneHasGone(Worker* worker, Wave* wave) {
  Block* block = wave->block;
  if (wave->arrived != 0 && wave->arrived == wave->alive) CompleteWave(worker, wave);
  if (block->live != 0 && block->at_barrier == block->live) CompleteBlock(worker, block);
}

void SyncWave(Location where) {
  Lane* lane = ThisLane();
  Wave* wave = lane->wave;
  SyncPoint* point = &wave->sync_point[wave->generation & 1];
  OrderArrive(lane, point, Barrier::kWave);
  MeetWave(0, "SyncWave", where);
  OrderLeave(lane, point, Barrier::kWave);
}

uint64_t ShuffleFrom(uint64_t value, int source, Location where) {
  const uint32_t parity = MeetWave(value, "a shuffle", where);
  const Wave* wave = ThisLane()->wave;
  if (source < 0 || source >= wave_size || (wave->members[parity] & LaneBit(source)) == 0) {
    return value;
  }
  return wave->values[parity][source];
}

uint64_t BallotOf(bool predicate, Location where) {
  const uint32_t parity = MeetWave(predicate ? 1 : 0, "a ballot", where);
  return ThisLane()->wave->nonzero[parity];
}

void SyncBlock(Location where) {
  Worker* worker = Worker::Current();
  Lane* lane = ThisLane();
  Wave* wave = lane->wave;
  Block* block = wave->block;
  SyncPoint* point = &block->sync_point[block->barrier_generation & 1];
  OrderArrive(lane, point, Barrier::kBlock);
  if (block->at_barrier == 0) {
    block->barrier_where = where;
  } else if (!SamePlace(block->barrier_where, where)) {
    FailDivergent(lane, "__syncthreads", where, "__syncthreads", block->barrier_where);
  }
  ForgetPoll(lane);
  lane->where = where;
  wave->at_block |= LaneBit(lane->lane);
  if (++block->at_barrier == block->live) {
    CompleteBlock(worker, block);
  } else {
    lane->waiting = Waiting::kBlock;
    CheckWaveDivergence(lane, "__syncthreads", where);
    WaitForOthers(worker, lane);
  }
  OrderLeave(lane, point, Barrier::kBlock);
}

void SyncGrid(Location where) {
  Worker* worker = Worker::Current();
  Lane* lane = ThisLane();
  Wave* wave = lane->wave;
  Grid* grid = wave->block->grid;
  if (!grid->cooperative || grid->lanes_gone != 0) {
    TsanIgnoreBegin();
    std::string report = "this_grid().sync() " + DescribeWhere(where);
    report += grid->cooperative ? ": other lanes have left the kernel already"
                                : ": the launch was not cooperative";
    worker->FailFromLane(lane, hipErrorLaunchFailure, std::move(report));
  }
  SyncPoint* point = &grid->sync_point[grid->sync_generation & 1];
  OrderArrive(lane, point, Barrier::kGrid);
  if (grid->at_sync == 0) {
    grid->sync_where = where;
  } else if (!SamePlace(grid->sync_where, where)) {
    FailDivergent(lane, "this_grid().sync()", where, "this_grid().sync()", grid->sync_where);
  }
  ForgetPoll(lane);
  lane->where = where;
  wave->at_grid |= LaneBit(lane->lane);
  if (++grid->at_sync == grid->num_lanes) {
    grid->at_sync = 0;
    ++grid->sync_generation;
    for (const auto& block : grid->blocks) {
      for (Wave& other : block->waves) {
        other.runnable |= other.at_grid;
        other.at_grid = 0;
      }
    }
    worker->NoteProgress();
  } else {
    lane->waiting = Waiting::kGrid;
    CheckWaveDivergence(lane, "this_grid().sync()", where);
    WaitForOthers(worker, lane);
  }
  OrderLeave(lane, point, Barrier::kGrid);
}

}  // namespace octet::emulation
