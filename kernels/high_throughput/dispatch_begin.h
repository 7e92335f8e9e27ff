// How every kernel of a dispatch of `high_throughput` begins, before rows are sent, and how it
// describes to the caller what will arrive.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_BEGIN_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_BEGIN_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/credits.h"
#include "kernels/ep/device/load_counters_device.h"
#include "kernels/high_throughput/dispatch_layout.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/protocol.h"
#include "runtime/device/epoch.h"

namespace octet::high_throughput {

// A dispatch and its destination offsets.
struct Call {
  const DispatchParams& p;
  const LayoutShared& s;
  uint64_t epoch;
};

// Makes the layout known, before any row is sent. Returns false if a peer's words did not arrive,
// or a rank has too little room: then no rank sends any row. `shared`: all shared memory of the
// block.
template <typename Trace>
__device__ bool MakeLayoutKnown(const Call& call, const Share& share, int32_t* shared,
                                const Trace& trace) {
  const auto& [p, s, epoch] = call;
  const CommonParams& c = p.common;
  // All previous kernels in the stream are done, and with them all reads of this rank, here or by
  // pulling from others. No rank sends a row before all ranks have said so.
  if (blockIdx.x == 0) {
    device::GiveCredits(c, c.layout.combine_credits, c.state->combine.epoch - 1);
    device::GiveCredits(c, c.layout.dispatch_credits,
                        device::PackEpochCount(epoch, p.layout_number), /*fence=*/false);
  }
  bool ok = false;
  if (p.new_layout) {
    uint64_t start = trace.Start();
    CountShare(p, share, shared, epoch);
    trace.Stop(start, static_cast<uint32_t>(Tag::kCount));
    start = trace.Start();
    SumColumns(p, epoch);
    const bool keeps = HasRoomForCounts(c.layout);
    ok = CountExchange(c, epoch).AwaitCounts([&](int i, uint32_t count) {
      if (keeps) s.all_counts()[i] = static_cast<int32_t>(count);
    });
    if (ok) {
      ComputeOffsets(p, s, epoch);
      ok = AllRanksHaveRoom(p, s);
    }
    trace.Stop(start, static_cast<uint32_t>(Tag::kExchange));
  } else {
    ok = CountExchange(c, epoch).AwaitSameLayout(p.layout_number);
    if (ok) LoadOffsets(c, s);
  }
  if (ok && blockIdx.x == 0) WriteTotals(p, s, epoch);
  return ok;
}

// Makes the description of the received rows zeros. Called by thread `first` of `step`.
__device__ inline void ClearDescription(const DispatchParams& p, int first, int step) {
  const Layout& layout = p.common.layout;
  for (int e = first; e < layout.num_local_experts; e += step) p.expert_counts[e] = 0;
  for (int e = first; e <= layout.num_local_experts; e += step) p.expert_offsets[e] = 0;
  for (int r = first; r <= layout.num_ranks; r += step) p.source_offsets[r] = 0;
}

// Writes the description of the received rows for the caller; zeros unless `ok`. Called by thread
// `first` of `step`.
__device__ inline void DescribeRows(const DispatchParams& p, const LayoutShared& s, bool ok,
                                    int first, int step) {
  if (!ok) {
    ClearDescription(p, first, step);
    return;
  }
  const Layout& layout = p.common.layout;
  const int num_local = layout.num_local_experts;
  const int32_t* first_row = s.first_row() + layout.experts().FirstExpert(p.common.peers.rank);
  for (int e = first; e < num_local; e += step) {
    p.expert_counts[e] = s.counts()[e];
    p.expert_offsets[e] = first_row[e];
  }
  if (first == 0) p.expert_offsets[num_local] = *s.end_row();
  for (int r = first; r <= layout.num_ranks; r += step) p.source_offsets[r] = s.sources()[r];
}

// Counts the rows of the call; none unless `ok`. Called by all threads of one block.
__device__ __forceinline__ void CountRows(const DispatchParams& p, const LayoutShared& s,
                                          uint64_t epoch, bool ok) {
  device::CountLoads(p.common.loads, epoch, static_cast<int>(threadIdx.x),
                     static_cast<int>(blockDim.x), [&](int e) { return ok ? s.counts()[e] : 0; });
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_BEGIN_H_
