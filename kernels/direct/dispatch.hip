// direct dispatch: every (token, k) is sent by itself, announced by a flag of its own.
//
//   this rank                                    destination d = rank of the expert
//   ---------                                    ----------------------------------
//   topk_idx [T][K] ── counted by one block ───► counts[me][L]        (epoch and count in one word)
//   x [T][H] ── a wave for each part of a row ─► rows[me][slot][H]    16-byte stores
//                                                packets[me][slot]    origin, then the flag
//
//   counts[R][L] ── every receiving block ─────► first row of each (expert, source)
//   packets, rows ── a wave for each part ─────► recv_x[row][H], sources[row]
//
// Send. The slot of a row is its position among this rank's rows to that destination, its index is
// its position among those to that expert: both by prefix sums over the routing, so that they are
// the same in every run (or by racing counters, if asked). Each block finds the sums up to its own
// first row by itself; that costs less than a grid barrier. Before the first row it waits for the
// credit that says that its slots have been consumed.
// Receive. All counts give the place of each (expert, source) in the packed output; the index in
// the packet gives the place therein. Work is walked over the concatenation of all sources, so that
// waves have equal shares when sources have not.
//
// Both run side by side in one grid, in blocks of their own, or in two launches one after the
// other.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/counts.h"
#include "kernels/device/delivery.h"
#include "kernels/device/row_copy.h"
#include "kernels/device/wave_scan.h"
#include "kernels/direct/kernels.h"
#include "kernels/direct/phase.h"
#include "runtime/device/block_counter.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"
#include "runtime/device/wait.h"

namespace octet::direct {
namespace {

using device::FetchAddRelaxed;
using device::Lane;
using device::Scope;
using device::StoreRelease;
using device::Vec16;
using device::Wave;

// Rows whose places are worked out at a time.
constexpr int kTileRows = 256;

// A sending block's shared memory.
struct SendShared {
  int32_t* expert_before;  // [E] rows to each expert that come before the tile
  int32_t* rank_before;    // [kMaxRanks] rows to each rank that come before the tile
  int32_t* expert;         // [kTileRows] the tile's ids
  int32_t* slot;           // [kTileRows] -1: not sent
  int32_t* index;          // [kTileRows]

  __device__ SendShared(int32_t* shared, int num_experts)
      : expert_before(shared),
        rank_before(expert_before + num_experts),
        expert(rank_before + kMaxRanks),
        slot(expert + kTileRows),
        index(slot + kTileRows) {}
};

// A receiving block's.
struct ReceiveShared {
  int32_t* first_row;    // [L][R] first row of each (expert, source), then their total
  int32_t* source_rows;  // [kMaxRanks]

  __device__ ReceiveShared(int32_t* shared, int num_experts)
      : first_row(shared), source_rows(shared + num_experts + 1) {}
};

constexpr size_t SharedInts(int num_experts) {
  return static_cast<size_t>(num_experts) + kMaxRanks + 3 * kTileRows;
}

__device__ __forceinline__ bool IsExpert(int32_t id, const Layout& layout) {
  return id >= 0 && id < layout.num_experts;
}

// Loads of the routing that a thread has in flight.
constexpr int kIdsInFlight = 4;

// Counts rows of flat tokens [from, first) to each expert and rank on top of what is there, and
// takes the ids of [first, first + rows) as the tile.
__device__ void ReadRouting(const DispatchParams& p, const SendShared& s, int from, int first,
                            int rows) {
  const Layout& layout = p.common.layout;
  const int end = first + rows;
  const int step = blockDim.x;
  for (int next = from + static_cast<int>(threadIdx.x); next < end; next += kIdsInFlight * step) {
    int32_t ids[kIdsInFlight];
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      ids[u] = next + u * step < end ? p.topk_idx[next + u * step] : -1;
    }
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      const int flat = next + u * step;
      if (flat >= first) {
        if (flat < end) s.expert[flat - first] = ids[u];
      } else if (IsExpert(ids[u], layout)) {
        FetchAddRelaxed<Scope::kBlock>(&s.expert_before[ids[u]], 1);
        FetchAddRelaxed<Scope::kBlock>(&s.rank_before[ids[u] / layout.num_local_experts], 1);
      }
    }
  }
}

// Tells every destination how many rows each of its experts gets from this rank.
__device__ void SendCounts(const DispatchParams& p, const SendShared& s, uint64_t epoch) {
  const Layout& layout = p.common.layout;
  const device::PeerBases& peers = p.common.peers;
  for (int e = threadIdx.x; e < layout.num_experts; e += blockDim.x) {
    const int rank = e / layout.num_local_experts;
    uint64_t* count =
        layout.Count(peers.base[rank], epoch, peers.rank, e - rank * layout.num_local_experts);
    // More than one for each token only if experts were chosen twice.
    const int32_t counted = s.expert_before[e];
    const int32_t rows = counted < layout.max_tokens ? counted : layout.max_tokens;
    device::StoreCount(count, epoch, rows);
  }
}

// Reports an id that cannot be right. False if it is not even an expert's: such a row is not sent.
// A row of an expert chosen twice is, where there is a slot for it, since it has been counted.
__device__ bool CheckId(const DispatchParams& p, int flat, int32_t id) {
  const Layout& layout = p.common.layout;
  const bool in_range = id >= -1 && id < layout.num_experts;
  bool twice = false;
  if (id >= 0) {
    for (int before = flat - flat % layout.topk; before < flat; ++before) {
      twice = twice || p.topk_idx[before] == id;
    }
  }
  if (!in_range || twice) {
    device::Fail(p.common.failure, device::FailureKind::kInput,
                 MakeSite(in_range ? Site::kExpertTwice : Site::kExpertOutOfRange, -1,
                          static_cast<uint32_t>(flat)),
                 static_cast<uint64_t>(layout.num_experts),
                 static_cast<uint64_t>(static_cast<int64_t>(id)), 0);
  }
  return in_range;
}

// Where each of the tile's rows goes.
__device__ void PlaceTile(const DispatchParams& p, const SendShared& s, int first, int rows) {
  const int num_local = p.common.layout.num_local_experts;
  for (int i = threadIdx.x; i < rows; i += blockDim.x) {
    const int32_t id = s.expert[i];
    int32_t slot = -1;
    int32_t index = 0;
    if (CheckId(p, first + i, id) && id >= 0) {
      const int rank = id / num_local;
      if (p.atomic_slots) {
        slot = FetchAddRelaxed<Scope::kDevice>(&p.common.state->rank_slots[rank], 1);
        index = FetchAddRelaxed<Scope::kDevice>(&p.common.state->expert_slots[id], 1);
      } else {
        const int first_expert = rank * num_local;
        slot = s.rank_before[rank];
        index = s.expert_before[id];
        for (int j = 0; j < i; ++j) {
          const int32_t other = s.expert[j];
          slot += other >= first_expert && other < first_expert + num_local ? 1 : 0;
          index += other == id ? 1 : 0;
        }
      }
      // With experts chosen twice there can be more rows than slots.
      if (slot >= p.common.layout.slots_per_source) slot = -1;
    }
    s.slot[i] = slot;
    s.index[i] = index;
  }
}

// Sends the tile's rows, a wave for each part.
template <typename Trace>
__device__ void SendTile(const DispatchParams& p, const SendShared& s, uint64_t epoch, int first,
                         int rows, const Trace& trace) {
  const Layout& layout = p.common.layout;
  const device::PeerBases& peers = p.common.peers;
  const int waves = blockDim.x / device::kWaveSize;
  for (int item = Wave(); item < rows * layout.row_parts; item += waves) {
    const int i = item / layout.row_parts;
    const int part = item - i * layout.row_parts;
    const int slot = s.slot[i];
    if (slot < 0) continue;
    const uint64_t start = trace.Start();
    const int flat = first + i;
    const int token = flat / layout.topk;
    const int32_t id = s.expert[i];
    const int rank = id / layout.num_local_experts;
    char* base = peers.base[rank];
    const Vec16* row =
        static_cast<const Vec16*>(p.x) + static_cast<size_t>(token) * layout.row_vecs;
    device::WaveCopyRow(reinterpret_cast<Vec16*>(layout.Row(base, peers.rank, slot)), row,
                        device::PartOfRow(part, layout.row_parts, layout.row_vecs));
    Packet* packet = layout.PacketOf(base, peers.rank, slot, part);
    if (Lane() == 0) {
      packet->index = static_cast<uint32_t>(s.index[i]);
      packet->source = RowSource{peers.rank, token, flat - token * layout.topk,
                                 id - rank * layout.num_local_experts};
    }
    if (!p.common.source_flags) device::WavePublish(&packet->flag, epoch);
    trace.Stop(start, static_cast<uint32_t>(Tag::kSend), static_cast<uint32_t>(rank));
  }
}

// A block's share of the rows, tile by tile.
template <typename Trace>
__device__ void SendRows(const DispatchParams& p, const SendShared& s,
                         const device::Credits& credits, uint64_t epoch, int begin, int end,
                         const Trace& trace) {
  __shared__ uint32_t granted;
  const uint64_t start = trace.Start();
  int counted = p.atomic_slots ? begin : 0;
  for (int first = begin; first < end; first += kTileRows) {
    const int rows = end - first < kTileRows ? end - first : kTileRows;
    ReadRouting(p, s, counted, first, rows);
    counted = first;
    __syncthreads();
    PlaceTile(p, s, first, rows);
    uint64_t credit_start = 0;
    if (first == begin) {
      trace.Stop(start, static_cast<uint32_t>(Tag::kRoute));
      credit_start = trace.Start();
      credits.Await(p.common, epoch - 1, Site::kDispatchCredit, &granted);
    }
    __syncthreads();
    if (first == begin) {
      trace.Stop(credit_start, static_cast<uint32_t>(Tag::kCreditWait), device::kNoPeer);
    }
    if (granted != 0) SendTile(p, s, epoch, first, rows, trace);
    __syncthreads();
  }
}

template <typename Trace>
__device__ void Send(const DispatchParams& p, int32_t* shared) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const SendShared s(shared, layout.num_experts);
  const Trace trace(c.trace);
  const device::Credits credits(c, layout.dispatch_credits);
  for (int i = threadIdx.x; i < layout.num_experts + kMaxRanks; i += blockDim.x) shared[i] = 0;
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->dispatch_send, static_cast<uint32_t>(c.send_blocks));
  if (epoch == 0) return;
  const int num_rows = p.num_tokens * layout.topk;

  // With more than one block the first one only counts, so that counts leave before most rows.
  const int block = blockIdx.x;
  if (block == 0) {
    ReadRouting(p, s, 0, num_rows, 0);
    __syncthreads();
    SendCounts(p, s, epoch);
    ReturnCredits(c, epoch - 1, c.state->combine_receive.epoch - 1);
    if (c.send_blocks == 1) {
      __syncthreads();
      for (int i = threadIdx.x; i < layout.num_experts + kMaxRanks; i += blockDim.x) shared[i] = 0;
      __syncthreads();
    }
  }
  const int row_blocks = c.send_blocks > 1 ? c.send_blocks - 1 : 1;
  const int row_block = c.send_blocks > 1 ? block - 1 : 0;
  if (row_block >= 0) {
    const int share = (num_rows + row_blocks - 1) / row_blocks;
    const int begin = row_block * share < num_rows ? row_block * share : num_rows;
    const int end = begin + share < num_rows ? begin + share : num_rows;
    SendRows(p, s, credits, epoch, begin, end, trace);
  }

  if ((c.source_flags || p.atomic_slots) &&
      device::LastBlock(&c.state->dispatch_senders_done, static_cast<uint32_t>(c.send_blocks))) {
    // Not if some block had no credits.
    if (c.source_flags && static_cast<int>(threadIdx.x) < layout.num_ranks &&
        !device::HasFailed(c.failure)) {
      StoreRelease<Scope::kSystem>(
          FlagOf(c.peers.base[threadIdx.x], layout.source_flags, c.peers.rank), epoch);
    }
    if (p.atomic_slots) {
      for (int i = threadIdx.x; i < kMaxRanks; i += blockDim.x) c.state->rank_slots[i] = 0;
      for (int i = threadIdx.x; i < layout.num_experts; i += blockDim.x) {
        c.state->expert_slots[i] = 0;
      }
    }
  }
}

// Takes the counts of all sources. False if one did not come. `last`: the source that was missing
// last; as it was if none was.
__device__ bool ReceiveCounts(const DispatchParams& p, const ReceiveShared& s, uint64_t epoch,
                              uint32_t* last) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const auto take = [&](int i, uint32_t count) {
    const int source = i / layout.num_local_experts;
    const int local_expert = i - source * layout.num_local_experts;
    s.first_row[local_expert * layout.num_ranks + source] = static_cast<int32_t>(count);
  };
  return device::AwaitCounts(c, layout.Count(c.peers.base[c.peers.rank], epoch, 0, 0),
                             layout.num_ranks, layout.num_local_experts, epoch,
                             Site::kDispatchCount, take, last);
}

// A source has announced what there is no room for, since its ids were refused. Called by one
// thread.
__device__ void GiveUp(const DispatchParams& p, uint64_t epoch, int source, int slot) {
  device::Fail(p.common.failure, device::FailureKind::kReleased,
               MakeSite(Site::kDispatchRow, source, static_cast<uint32_t>(slot)), epoch, 0, 0);
}

// Makes of the counts the first row of each (expert, source), and the rows of each source. False
// if there are more rows than there is room for.
__device__ bool PlaceCounts(const DispatchParams& p, const ReceiveShared& s, uint64_t epoch) {
  const Layout& layout = p.common.layout;
  for (int i = threadIdx.x; i < kMaxRanks; i += blockDim.x) s.source_rows[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < layout.num_experts; i += blockDim.x) {
    const int32_t rows = s.first_row[i];
    if (rows != 0) FetchAddRelaxed<Scope::kBlock>(&s.source_rows[i % layout.num_ranks], rows);
  }
  __syncthreads();
  if (Wave() == 0) {
    const int32_t sum = device::WaveExclusiveScan(s.first_row, layout.num_experts);
    if (Lane() == 0) s.first_row[layout.num_experts] = sum;
  }
  __syncthreads();
  if (s.first_row[layout.num_experts] <= layout.max_rows) return true;
  if (threadIdx.x == 0) GiveUp(p, epoch, -1, 0);
  return false;
}

// Tells the caller what there is: nothing unless `ok`. Thread `first` of `step`.
__device__ void DescribeRows(const DispatchParams& p, const ReceiveShared& s, bool ok, int first,
                             int step) {
  const Layout& layout = p.common.layout;
  for (int e = first; e <= layout.num_local_experts; e += step) {
    const int32_t row = ok ? s.first_row[e * layout.num_ranks] : 0;
    p.expert_offsets[e] = row;
    if (e == layout.num_local_experts) continue;
    p.expert_counts[e] = ok ? s.first_row[(e + 1) * layout.num_ranks] - row : 0;
  }
}

// Takes one part of one row to its place. False if it did not come, or there is no room for it.
template <typename Trace>
__device__ bool ReceiveRow(const DispatchParams& p, const ReceiveShared& s, uint64_t epoch,
                           int source, int slot, int part, const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  if (slot >= layout.slots_per_source) {
    if (Lane() == 0) GiveUp(p, epoch, source, slot);
    return false;
  }
  char* base = c.peers.base[c.peers.rank];
  const Packet* packet = layout.PacketOf(base, source, slot, part);
  uint64_t start = trace.Start();
  const bool arrived =
      c.source_flags ||
      device::WaveWaitEpoch(c.failure, &packet->flag, epoch,
                            MakeSite(Site::kDispatchRow, source, static_cast<uint32_t>(slot)));
  trace.Stop(start, static_cast<uint32_t>(Tag::kRowWait), static_cast<uint32_t>(source));
  if (!arrived) return false;
  start = trace.Start();
  const RowSource origin = packet->source;
  const int row = s.first_row[origin.local_expert * layout.num_ranks + source] +
                  static_cast<int>(packet->index);
  if (row >= layout.max_rows) {
    if (Lane() == 0) GiveUp(p, epoch, source, slot);
    return false;
  }
  device::WaveCopyRow(static_cast<Vec16*>(p.recv_x) + static_cast<size_t>(row) * layout.row_vecs,
                      reinterpret_cast<const Vec16*>(layout.Row(base, source, slot)),
                      device::PartOfRow(part, layout.row_parts, layout.row_vecs));
  if (part == 0 && Lane() == 0) p.sources[row] = origin;
  trace.Stop(start, static_cast<uint32_t>(Tag::kCopy), static_cast<uint32_t>(row));
  return true;
}

template <typename Trace>
__device__ void Receive(const DispatchParams& p, int32_t* shared) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const ReceiveShared s(shared, layout.num_experts);
  const Trace trace(c.trace);
  const int block = static_cast<int>(blockIdx.x) - c.send_blocks;
  const int num_blocks = static_cast<int>(gridDim.x) - c.send_blocks;
  uint64_t epoch = 0;
  const bool begun = device::BeginCall(c.failure, &c.state->dispatch_receive,
                                       static_cast<uint32_t>(num_blocks), &epoch);

  const uint64_t start = trace.Start();
  uint32_t last = device::kNoPeer;
  bool ok = begun && ReceiveCounts(p, s, epoch, &last);
  ok = ok && PlaceCounts(p, s, epoch);
  if (ok && c.source_flags) {
    ok = device::AwaitFlags(c, layout.source_flags, epoch, Site::kDispatchSource, &last);
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kCountWait), last);
  const auto describe = [&](bool known, int begin, int step) {
    DescribeRows(p, s, known, begin, step);
  };
  // By the block with the fewest rows.
  device::DescribeDelivery(&c.state->delivery, epoch, block == num_blocks - 1, ok, describe);
  if (!ok) return;
  const int waves = blockDim.x / device::kWaveSize;
  int item = block * waves + Wave();
  int first = 0;
  for (int source = 0; source < layout.num_ranks && ok; ++source) {
    const int end = first + s.source_rows[source] * layout.row_parts;
    for (; item < end && ok; item += num_blocks * waves) {
      const int slot = (item - first) / layout.row_parts;
      const int part = item - first - slot * layout.row_parts;
      ok = ReceiveRow(p, s, epoch, source, slot, part, trace);
    }
    first = end;
  }
  if (!ok) device::WithdrawDelivery(&c.state->delivery, epoch, describe);
}

template <typename Trace>
__global__ void __launch_bounds__(kMaxThreads, 2) Dispatch(const DispatchParams p) {
  HIP_DYNAMIC_SHARED(int32_t, shared);
  if (static_cast<int>(blockIdx.x) < p.common.send_blocks) {
    Send<Trace>(p, shared);
  } else {
    Receive<Trace>(p, shared);
  }
}

using Kernel = void (*)(DispatchParams);

Kernel PickKernel(bool traced) {
  return traced ? Dispatch<device::Tracer> : Dispatch<device::NoTracer>;
}

}  // namespace

size_t SharedBytes(const Layout& layout) {
  return SharedInts(layout.num_experts) * sizeof(int32_t);
}

hipError_t LoadDispatch(bool traced) { return device::LoadKernel(PickKernel(traced)); }

hipError_t LaunchDispatch(const DispatchParams& params, bool traced, const LaunchShape& shape,
                          hipStream_t stream) {
  DispatchParams p = params;
  void* args[] = {&p};
  return hipLaunchCooperativeKernel(PickKernel(traced), dim3(static_cast<unsigned>(shape.blocks)),
                                    dim3(static_cast<unsigned>(shape.threads)), args,
                                    static_cast<unsigned>(shape.shared_bytes), stream);
}

hipError_t DispatchBlocksPerUnit(bool traced, const LaunchShape& shape, int* blocks) {
  return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, PickKernel(traced), shape.threads,
                                                      shape.shared_bytes);
}

}  // namespace octet::direct
