// The order in which a dispatch with a product sends: by expert, so that each rank's first experts
// have all of their rows early.
//
//   routes [T][K] ── a block for each share ──► order[n][..]   the choices of rank n's experts, by
//                                                              (expert, token); n is the prefix sum
//                                                              of this rank's counts
//
// A choice's place in the order is that of its row among this rank's rows for the expert, which the
// layout has computed. So nothing is sorted. With DispatchRoles::by_token it is its place in
// routes.
#ifndef OCTET_KERNELS_FUSED_SEND_ORDER_H_
#define OCTET_KERNELS_FUSED_SEND_ORDER_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/wave_scan.h"
#include "kernels/fused/kernels.h"
#include "kernels/high_throughput/dispatch_layout.h"
#include "kernels/high_throughput/phase.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::fused {

using high_throughput::Layout;
using high_throughput::LayoutShared;
using high_throughput::Route;

// Returns the size of the first entries of all experts, in 4-byte words.
__host__ __device__ inline int FirstEntryInts(const Layout& layout) {
  return layout.num_experts + 1;
}

// Sets first[e] to the first entry of expert e, and first[E] to the number of entries. Called by
// all threads of a block; ends with a barrier.
__device__ inline void FindFirstEntries(const high_throughput::CommonParams& c, uint64_t epoch,
                                        int32_t* first) {
  const Layout& layout = c.layout;
  const int me = c.peers.rank;
  if (device::Wave() == 0) {
    const int32_t all = device::WaveExclusiveScan(
        layout.num_experts,
        [&](int e) {
          return device::LoadRelaxed<device::Scope::kSystem>(
              layout.Count(c.peers.base[me], epoch, me, e));
        },
        [](int /*e*/, uint64_t word) { return static_cast<int32_t>(device::CountOf(word)); },
        [first](int e, int32_t sum) { first[e] = sum; });
    if (device::Lane() == 0) first[layout.num_experts] = all;
  }
  __syncthreads();
}

// What a lane finds out about its choice from the other choices of its token.
struct Siblings {
  int holder;        // the first row of the token on the rank of this choice
  int index;         // of the choice among those of its rank
  int choices;       // of that rank
  int combine_slot;  // of that rank among the token's
};

// `first_lane`: of the token. Called by all lanes.
__device__ inline Siblings FindSiblings(const Layout& layout, const Route& route, int rank,
                                        int first_lane) {
  Siblings found = {route.row, 0, 0, 0};
  uint32_t ranks = 0;
  for (int k = 0; k < layout.topk; ++k) {
    const int other_rank = device::Shuffle(rank, first_lane + k);
    const int other_row = device::Shuffle(route.row, first_lane + k);
    if (other_rank < 0) continue;
    ranks |= 1U << other_rank;
    if (other_rank != rank) continue;
    ++found.choices;
    if (first_lane + k < device::Lane()) ++found.index;
    if (other_row < found.holder) found.holder = other_row;
  }
  if (rank >= 0) found.combine_slot = __popc(ranks & device::BitsBelow(rank));
  return found;
}

// Finishes the routes of this block's share, and enters its choices into the order. `first`:
// FindFirstEntries. With by_token dropped choices are entered, too, as such.
__device__ inline void OrderShare(const DispatchGemmParams& p, const LayoutShared& s,
                                  const int32_t* first, uint64_t epoch) {
  const high_throughput::DispatchParams& d = p.dispatch;
  const Layout& layout = d.common.layout;
  const int topk = layout.topk;
  const int block = static_cast<int>(blockIdx.x);
  const size_t blocks = gridDim.x;
  const int share = high_throughput::ShareTokens(d);
  const int begin = block * share < d.num_tokens ? block * share : d.num_tokens;
  const int end = begin + share < d.num_tokens ? begin + share : d.num_tokens;
  const int at_once = device::kWaveSize / topk;
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  for (int token = begin + device::Wave() * at_once; token < end; token += waves * at_once) {
    const int n = end - token < at_once ? end - token : at_once;
    const bool has = device::Lane() < n * topk;
    const int flat = token * topk + device::Lane();
    Route route = {-1, 0, 0, 0};
    if (has) route = d.common.kept.routes[flat];
    const int rank = route.expert >= 0 ? layout.experts().RankOf(route.expert) : -1;
    if (rank >= 0) {
      route.slot += d.before[static_cast<size_t>(layout.num_experts + rank) * blocks + block];
      route.row +=
          d.before[static_cast<size_t>(route.expert) * blocks + block] + s.base()[route.expert];
      d.common.kept.routes[flat] = route;
    }
    const int first_lane = device::Lane() / topk * topk;
    const Siblings siblings = FindSiblings(layout, route, rank, has ? first_lane : 0);
    const bool by_token = p.roles.by_token;
    if (rank < 0) {
      if (by_token && has) p.order[flat] = {flat, -1, -1, 0};
      continue;
    }
    const int entry = by_token ? flat : first[route.expert] + route.row - s.base()[route.expert];
    p.order[entry] = {flat, route.row, p.roles.every_row ? route.row : siblings.holder,
                      high_throughput::PackPlace(siblings.combine_slot, route.slot, siblings.index,
                                                 siblings.choices)};
  }
  device::SyncBlockStores();
  if (threadIdx.x == 0) {
    device::FenceRelease<device::Scope::kDevice>();
    device::StoreRelaxed<device::Scope::kDevice>(p.ordered_blocks + block, epoch);
  }
}

// Waits until all blocks have ordered their choices. Called by a wave.
__device__ inline bool AwaitOrder(const DispatchGemmParams& p, uint64_t epoch) {
  const int blocks = static_cast<int>(gridDim.x);
  for (int first = 0; first < blocks; first += device::kWaveSize) {
    const int own = first + device::Lane();
    const int block = own < blocks ? own : blocks - 1;
    if (!device::WaveWaitEpochs(p.dispatch.common.failure, p.ordered_blocks + block, epoch,
                                device::MakeSite(high_throughput::Site::kOrderedBlock, -1,
                                                 static_cast<uint32_t>(block)))) {
      return false;
    }
  }
  return true;
}

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_SEND_ORDER_H_
