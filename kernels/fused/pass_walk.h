// A walk over tiles by passes, groups of columns, for whoever waits for the product while it is
// computed: all experts' tiles of the first columns come first.
#ifndef OCTET_KERNELS_FUSED_PASS_WALK_H_
#define OCTET_KERNELS_FUSED_PASS_WALK_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/fused/gives_up.h"
#include "kernels/gemm/tile_walk.h"
#include "kernels/high_throughput/phase.h"
#include "octet/peers.h"
#include "runtime/device/wait.h"

namespace octet::fused {

// The passes of a product, one for each part of a row. The part's columns are in its pass and in
// those before it. A part may need no pass of its own.
struct Passes {
  int parts;
  int row_vecs;    // of a whole row
  uint64_t* done;  // [parts]: how many tellers have stored all of their tiles of the pass
  uint64_t epoch;
  const device::FailurePort* failure;
};

// `scope`: that in which a teller releases what has been stored.
template <typename Gemm, device::Scope scope = device::Scope::kDevice>
class PassWalk {
 public:
  static constexpr bool kAwaits = false;
  static constexpr bool kTells = true;

  // As TileWalk. `blocks`: of the grid, those that multiply.
  __device__ PassWalk(const ExpertRows* rows, int experts, const Passes& passes, int blocks)
      : rows_(rows),
        experts_(experts),
        passes_(passes),
        blocks_(blocks),
        walk_(rows, experts, EndOf(0) * Gemm::kColumns) {}

  __device__ __forceinline__ bool Find(int unit) {
    while (pass_ < passes_.parts && !walk_.Find(unit - first_unit_)) {
      first_unit_ += walk_.units();
      first_tile_ = EndOf(pass_);
      ++pass_;
      if (pass_ == passes_.parts) break;
      walk_ = TileWalk<Gemm>(rows_, experts_, (EndOf(pass_) - first_tile_) * Gemm::kColumns);
    }
    return pass_ < passes_.parts;
  }

  __device__ int units() const { return first_unit_; }
  __device__ int blocks() const { return blocks_; }
  // Whoever waits for the pass knows more about it, and its deadline comes first.
  __device__ bool GivesUp(uint64_t waited) const {
    return fused::GivesUp(*passes_.failure, waited, 2);
  }
  __device__ void TellStuck() const { fused::TellStuck(*passes_.failure, passes_.epoch); }
  __device__ bool SameRows() const { return walk_.SameRows(); }

  // A tile that the pass does not have lies behind the last column of all.
  __device__ __forceinline__ device::GemmTile Tile(int member) const {
    device::GemmTile tile = walk_.Tile(member);
    tile.column += first_tile_ * Gemm::kColumns;
    if (tile.column >= EndOf(pass_) * Gemm::kColumns) {
      tile.column = EndOf(passes_.parts - 1) * Gemm::kColumns;
    }
    return tile;
  }

  __device__ __forceinline__ bool HasToTell() const { return told_ < pass_; }
  __device__ __forceinline__ void Tell(bool tells) {
    if (tells) device::FenceRelease<scope>();
    for (; told_ < pass_; ++told_) {
      if (tells) device::FetchAddRelaxed<device::Scope::kDevice>(passes_.done + told_, uint64_t{1});
    }
  }

 private:
  // The first column tile behind a pass.
  __device__ __forceinline__ int EndOf(int pass) const {
    constexpr int kVecColumns = static_cast<int>(kVecBytes / sizeof(uint16_t));
    const int end = device::PartOfRow(pass, passes_.parts, passes_.row_vecs).end * kVecColumns;
    return (end + Gemm::kColumns - 1) / Gemm::kColumns;
  }

  const ExpertRows* rows_;
  int experts_;
  Passes passes_;
  int blocks_;
  int pass_ = 0;
  int told_ = 0;
  int first_unit_ = 0;  // of the pass
  int first_tile_ = 0;  // of its column tiles
  TileWalk<Gemm> walk_;
};

// Waits for the passes up to `part` of the product. `*done`: those that the wave has waited for.
// Called by a wave. Returns false if one did not come.
__device__ inline bool AwaitPasses(const high_throughput::CommonParams& c, uint64_t epoch,
                                   uint64_t tellers, int part, int* done) {
  for (; *done <= part; ++*done) {
    const high_throughput::Site where = high_throughput::Site::kProductPass;
    if (!device::WaveWaitEpoch(c.failure, high_throughput::PassWord(c, epoch, *done), tellers,
                               device::MakeSite(where, -1, static_cast<uint32_t>(*done)))) {
      return false;
    }
  }
  return true;
}

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_PASS_WALK_H_
