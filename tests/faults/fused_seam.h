// The seam through which faults get into the kernels of fused experts, as seam.h is that of the
// strategies: the kernels' files are compiled with `-include tests/faults/fused_seam.h`, the real
// headers come first, then their names are replaced. With FusedFault::kNone these are what they
// replace.
#ifndef OCTET_TESTS_FAULTS_FUSED_SEAM_H_
#define OCTET_TESTS_FAULTS_FUSED_SEAM_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <source_location>
#include <string_view>

#include "device_ops.h"
#include "kernels/ep/device/work_queue_device.h"
#include "kernels/high_throughput/protocol.h"
#include "tests/faults/fused_fault.h"

namespace octet::faults {

inline bool Planted(FusedFault fault) { return planted_fused == fault; }
inline bool PlantedIn(FusedFault fault, const std::source_location& where) {
  return Planted(fault) &&
         std::string_view(where.function_name()).find(planted_function) != std::string_view::npos;
}

}  // namespace octet::faults

namespace octet::device {

template <Scope scope>
inline void SeamFenceRelease(std::source_location where = std::source_location::current()) {
  if (!faults::PlantedIn(faults::FusedFault::kNoRelease, where)) FenceRelease<scope>();
}
template <Scope scope, typename T>
inline void SeamStoreRelease(T* p, T v,
                             std::source_location where = std::source_location::current()) {
  if (faults::PlantedIn(faults::FusedFault::kNoRelease, where)) {
    StoreRelaxed<scope>(p, v);
  } else {
    StoreRelease<scope>(p, v);
  }
}
inline void SeamSyncBlockStores(std::source_location where = std::source_location::current()) {
  if (!faults::PlantedIn(faults::FusedFault::kNoBarrier, where)) SyncBlockStores();
}

}  // namespace octet::device

// What is included from here on: the products, the walks, and the kernels.
#define FenceRelease SeamFenceRelease
#define StoreRelease SeamStoreRelease
#define SyncBlockStores SeamSyncBlockStores

#include "kernels/fused/arriving_walk.h"
#include "kernels/fused/pass_walk.h"

namespace octet::high_throughput {

class SeamRowReceiver {
 public:
  SeamRowReceiver(const CommonParams& c, uint64_t epoch) : receiver_(c, epoch) {}

  template <typename Source>
  bool Await(int row, Source source, int* combine_slot, int* last_lane) const {
    const bool for_holders = ++waits_ == 2;
    if (for_holders && faults::Planted(faults::FusedFault::kCopiedBeforeHolder)) return true;
    return receiver_.Await(row, source, combine_slot, last_lane);
  }
  RowOrigin OriginOf(int row) const {
    RowOrigin origin = receiver_.OriginOf(row);
    const bool is_copy = origin.holder != row;
    if (is_copy && faults::Planted(faults::FusedFault::kHolderOffByOne)) ++origin.holder;
    return origin;
  }
  void Keep(int row, const RowOrigin& origin, int combine_slot) const {
    receiver_.Keep(row, origin, combine_slot);
  }

 private:
  RowReceiver receiver_;
  mutable int waits_ = 0;
};

}  // namespace octet::high_throughput

namespace octet::fused {

template <typename Gemm>
class SeamArrivingWalk : public ArrivingWalk<Gemm> {
 public:
  using ArrivingWalk<Gemm>::ArrivingWalk;

  void Await(const device::GemmTile& tile, int rows) {
    if (faults::Planted(faults::FusedFault::kTileStartsEarly)) return;
    device::GemmTile awaited = tile;
    if (faults::Planted(faults::FusedFault::kGroupOffByOne)) {
      awaited.row = awaited.row < device::kWaveSize ? 0 : awaited.row - device::kWaveSize;
      rows = rows < tile.rows ? rows : tile.rows;
      if (tile.row + rows <= device::kWaveSize) return;
    }
    ArrivingWalk<Gemm>::Await(awaited, rows);
  }
};

inline bool SeamAwaitPasses(const high_throughput::CommonParams& c, uint64_t epoch,
                            uint64_t tellers, int part, int* done) {
  if (faults::Planted(faults::FusedFault::kPassNotAwaited)) return true;
  const int awaited = faults::Planted(faults::FusedFault::kPassOffByOne) ? part - 1 : part;
  return AwaitPasses(c, epoch, tellers, awaited, done);
}

}  // namespace octet::fused

namespace octet::device {

inline int SeamFirstWork(WorkQueue* queue, uint64_t epoch, const WorkTeam& team) {
  const int first = FirstWork(queue, epoch, team);
  const bool lost = first == 1 && (faults::Planted(faults::FusedFault::kBatchLost) ||
                                   faults::Planted(faults::FusedFault::kTaskLost));
  return lost ? NextWork(queue, epoch, team) : first;
}

}  // namespace octet::device

#define RowReceiver SeamRowReceiver
#define ArrivingWalk SeamArrivingWalk
#define AwaitPasses SeamAwaitPasses
#define FirstWork SeamFirstWork

#endif  // OCTET_TESTS_FAULTS_FUSED_SEAM_H_
