// A walk over tiles whose rows arrive while the kernel runs.
#ifndef OCTET_KERNELS_FUSED_ARRIVING_WALK_H_
#define OCTET_KERNELS_FUSED_ARRIVING_WALK_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/credits.h"
#include "kernels/fused/gives_up.h"
#include "kernels/gemm/tile_walk.h"
#include "kernels/high_throughput/sites.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/wait.h"

namespace octet::fused {

// The rows that are complete.
struct ReadyRows {
  const uint64_t* groups;  // of kWaveSize rows: each has the call's epoch then
  // If tiles wait for all rows of their expert: how many are complete, and all; else null.
  const uint64_t* experts;
  const ExpertRows* expert_rows;
  uint64_t epoch;
  device::FailurePort failure;
};

template <typename Gemm>
class ArrivingWalk : public TileWalk<Gemm> {
 public:
  static constexpr bool kAwaits = true;

  __device__ ArrivingWalk(const TileWalk<Gemm>& walk, const ReadyRows& ready)
      : TileWalk<Gemm>(walk), ready_(ready) {
    // Whoever waits for a row knows more about it, and its deadline comes first.
    ready_.failure.deadline_ticks *= 2;
  }

  // Warps may have waited for rows before, until that deadline.
  __device__ bool GivesUp(uint64_t waited) const {
    return fused::GivesUp(ready_.failure, waited, 2);
  }
  __device__ void TellStuck() const { fused::TellStuck(ready_.failure, ready_.epoch); }

  // Waits for the first `rows` rows of `tile`, as far as it has them. After a failure it returns at
  // once: the call's results are void, and the grid must come to its end. Called by one thread,
  // whose acquire is at device scope.
  __device__ __forceinline__ void Await(const device::GemmTile& tile, int rows) {
    if (ready_.experts != nullptr) {
      AwaitExpert(tile.expert);
      return;
    }
    const int last = tile.row + (tile.rows < rows ? tile.rows : rows) - 1;
    const int first_group = tile.row / device::kWaveSize;
    const int groups = last / device::kWaveSize + 1 - first_group;
    for (int group = 0; group < groups; group += kAtOnce) {
      // All loads are under way before the first is looked at.
      uint64_t seen[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int own = group + i < groups ? group + i : groups - 1;
        seen[i] = device::LoadRelaxed<device::Scope::kDevice>(ready_.groups + first_group + own);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (group + i < groups && seen[i] < ready_.epoch) AwaitGroup(first_group + group + i);
      }
    }
    device::FenceAcquire<device::Scope::kDevice>();
  }

 private:
  static constexpr int kAtOnce = 5;  // groups of 32 rows that a tile of 128 rows may touch

  __device__ __forceinline__ void AwaitGroup(int group) {
    AwaitWord(ready_.groups + group, ready_.epoch,
              device::MakeSite(high_throughput::Site::kReadyGroup, -1,
                               static_cast<uint32_t>(group * device::kWaveSize)));
  }

  __device__ __forceinline__ void AwaitExpert(int expert) {
    const ExpertRows rows = ready_.expert_rows[expert];
    AwaitWord(
        ready_.experts + expert, static_cast<uint64_t>(rows.end - rows.first),
        device::MakeSite(high_throughput::Site::kReadyExpert, -1, static_cast<uint32_t>(expert)));
    device::FenceAcquire<device::Scope::kDevice>();
  }

  __device__ __forceinline__ void AwaitWord(const uint64_t* word, uint64_t least,
                                            const device::Site& site) {
    if (failed_) return;
    uint64_t start = 0;
    failed_ = !device::PollUntil(ready_.failure, word, site, least, &start,
                                 [least](uint64_t seen) { return seen >= least; });
  }

  ReadyRows ready_;
  bool failed_ = false;
};

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_ARRIVING_WALK_H_
