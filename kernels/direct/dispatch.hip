// direct dispatch: every (token, k) is sent separately and announced by its own flag.
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
// Send. The slot of a row is its position among this rank's rows to that destination; its index is
// its position among those to that expert. Prefix sums over the routing compute both, so that they
// are the same in every run (or racing counters do, if asked for). Each block computes the sums up
// to its own first row; this costs less than a grid barrier. Before its first row it waits for the
// credits, which say that its slots have been consumed.
//
// Receive. The counts of all sources determine the first row of each (expert, source) in the packed
// output; the index in the packet is relative to it. Blocks walk over the concatenation of all
// sources, so that waves get equal shares even if the sources differ.
//
// Both run concurrently in one grid, in separate blocks, or in two launches one after the other.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/direct/kernels.h"
#include "kernels/direct/protocol.h"
#include "kernels/ep/device/delivery.h"
#include "kernels/ep/device/load_counters_device.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/row_arrivals_device.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/wave_scan.h"
#include "runtime/device/block_counter.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"

namespace octet::direct {
namespace {

using device::FetchAddRelaxed;
using device::Lane;
using device::Scope;
using device::Wave;

// Rows whose slots and indices are computed at a time.
constexpr int kTileRows = 256;

// The shared memory of a sending block.
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

// The shared memory of a receiving block.
struct ReceiveShared {
  int32_t* first_row;    // [L][R] first row of each (expert, source), then their total
  int32_t* source_rows;  // [kMaxRanks]

  __device__ ReceiveShared(int32_t* shared, int num_experts)
      : first_row(shared), source_rows(shared + num_experts + 1) {}
};

constexpr size_t SharedInts(int num_experts) {
  return static_cast<size_t>(num_experts) + kMaxRanks + 3 * kTileRows;
}

// Loads of the routing that a thread has in flight.
constexpr int kIdsInFlight = 4;

// Flat tokens [first, end).
struct FlatRange {
  int first;
  int end;
};

// Adds the rows of flat tokens [from, tile.first) to the counts of their experts and ranks, and
// stores the ids of the tile.
__device__ void ReadRouting(const DispatchParams& p, const SendShared& s, int from,
                            const FlatRange& tile) {
  const Layout& layout = p.common.layout;
  const int first = tile.first;
  const int end = tile.end;
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
      } else if (layout.experts().IsExpert(ids[u])) {
        FetchAddRelaxed<Scope::kBlock>(&s.expert_before[ids[u]], 1);
        FetchAddRelaxed<Scope::kBlock>(&s.rank_before[layout.experts().RankOf(ids[u])], 1);
      }
    }
  }
}

// Announces to every destination how many rows each of its experts gets from this rank.
__device__ void SendCounts(const DispatchParams& p, const SendShared& s, uint64_t epoch) {
  const Layout& layout = p.common.layout;
  const DispatchSender sender(p.common, epoch);
  for (int e = threadIdx.x; e < layout.num_experts; e += blockDim.x) {
    // A count exceeds one row for each token only if experts were chosen twice.
    const int32_t counted = s.expert_before[e];
    sender.Announce(e, counted < layout.max_tokens ? counted : layout.max_tokens);
  }
}

// Computes the slot and the index of each of the tile's rows.
__device__ void PlaceTile(const DispatchParams& p, const SendShared& s, const FlatRange& tile) {
  const Layout& layout = p.common.layout;
  for (int i = threadIdx.x; i < tile.end - tile.first; i += blockDim.x) {
    const int32_t id = s.expert[i];
    int32_t slot = -1;
    int32_t index = 0;
    if (device::CheckChoice(p.common, layout, p.topk_idx, tile.first + i, id) && id >= 0) {
      const int rank = layout.experts().RankOf(id);
      if (p.atomic_slots) {
        slot = FetchAddRelaxed<Scope::kDevice>(&p.common.state->rank_slots[rank], 1);
        index = FetchAddRelaxed<Scope::kDevice>(&p.common.state->expert_slots[id], 1);
      } else {
        const int first_expert = layout.experts().FirstExpert(rank);
        slot = s.rank_before[rank];
        index = s.expert_before[id];
        for (int j = 0; j < i; ++j) {
          const int32_t other = s.expert[j];
          slot += other >= first_expert && other < first_expert + layout.num_local_experts ? 1 : 0;
          index += other == id ? 1 : 0;
        }
      }
      // If experts were chosen twice, there can be more rows than slots.
      if (slot >= layout.slots_per_source) slot = -1;
    }
    s.slot[i] = slot;
    s.index[i] = index;
  }
}

// Sends the tile's rows, one wave for each part.
template <typename Trace>
__device__ void SendTile(const DispatchParams& p, const SendShared& s, const DispatchSender& sender,
                         const FlatRange& tile, const Trace& trace) {
  const Layout& layout = p.common.layout;
  const int waves = blockDim.x / device::kWaveSize;
  for (int item = Wave(); item < (tile.end - tile.first) * layout.row_parts; item += waves) {
    const int i = item / layout.row_parts;
    const int part = item - i * layout.row_parts;
    const int slot = s.slot[i];
    if (slot < 0) continue;
    const uint64_t start = trace.Start();
    const int flat = tile.first + i;
    const int token = flat / layout.topk;
    if (!device::WaveAwaitRow(p.arrivals, token)) return;
    const int32_t id = s.expert[i];
    const int rank = layout.experts().RankOf(id);
    const RowSource source = {p.common.peers.rank, token, flat - token * layout.topk,
                              layout.experts().LocalExpert(id, rank)};
    sender.Send({rank, slot, static_cast<uint32_t>(s.index[i]), source},
                device::RowOf(p.x, token, layout.row_vecs), part);
    trace.Stop(start, static_cast<uint32_t>(Tag::kSend), static_cast<uint32_t>(rank));
  }
}

// Sends a block's share of the rows, tile by tile.
template <typename Trace>
__device__ void SendRows(const DispatchParams& p, const SendShared& s,
                         const device::Credits& credits, uint64_t epoch, const FlatRange& share) {
  __shared__ uint32_t granted;
  const Trace trace(p.common.trace);
  const DispatchSender sender(p.common, epoch);
  const uint64_t start = trace.Start();
  const int begin = share.first;
  int counted = p.atomic_slots ? begin : 0;
  for (int first = begin; first < share.end; first += kTileRows) {
    const FlatRange tile = {first, share.end - first < kTileRows ? share.end : first + kTileRows};
    ReadRouting(p, s, counted, tile);
    counted = first;
    __syncthreads();
    PlaceTile(p, s, tile);
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
    if (granted != 0) SendTile(p, s, sender, tile, trace);
    __syncthreads();
  }
}

template <typename Trace>
__device__ void Send(const DispatchParams& p, int32_t* shared) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const SendShared s(shared, layout.num_experts);
  const device::Credits credits(c, layout.dispatch_credits);
  for (int i = threadIdx.x; i < layout.num_experts + kMaxRanks; i += blockDim.x) shared[i] = 0;
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->dispatch_send, static_cast<uint32_t>(c.send_blocks));
  if (epoch == 0) return;
  const int num_rows = p.num_tokens * layout.topk;

  // If there are several blocks, the first one only counts, so that the counts are sent before most
  // rows.
  const int block = blockIdx.x;
  if (block == 0) {
    ReadRouting(p, s, 0, {num_rows, num_rows});
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
    SendRows<Trace>(p, s, credits, epoch, {begin, end});
  }

  if ((c.source_flags || p.atomic_slots) &&
      device::LastBlock(&c.state->dispatch_senders_done, static_cast<uint32_t>(c.send_blocks))) {
    DispatchSender(c, epoch).AnnounceEnd();
    if (p.atomic_slots) {
      for (int i = threadIdx.x; i < kMaxRanks; i += blockDim.x) c.state->rank_slots[i] = 0;
      for (int i = threadIdx.x; i < layout.num_experts; i += blockDim.x) {
        c.state->expert_slots[i] = 0;
      }
    }
  }
}

// Replaces the counts by the first row of each (expert, source), and computes the rows of each
// source. Returns false if there are more rows than there is room for.
__device__ bool ComputeFirstRows(const DispatchParams& p, const ReceiveShared& s,
                                 const DispatchReceiver& receiver) {
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
  if (threadIdx.x == 0) receiver.GiveUp(-1, 0);
  return false;
}

// Writes the description of the received rows for the caller; zeros unless `ok`. Called by thread
// `first` of `step`.
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

// A part of a row of the walk over all sources.
struct Item {
  int source;
  int slot;
  int part;
};

// Copies the item to its destination offset. Returns false if it did not arrive or there is no room
// for it.
template <typename Trace>
__device__ bool ReceiveRow(const DispatchParams& p, const ReceiveShared& s,
                           const DispatchReceiver& receiver, const Item& item, const Trace& trace) {
  const Layout& layout = p.common.layout;
  if (item.slot >= layout.slots_per_source) {
    if (Lane() == 0) receiver.GiveUp(item.source, item.slot);
    return false;
  }
  uint64_t start = trace.Start();
  const bool arrived = receiver.Await(item.source, item.slot, item.part);
  trace.Stop(start, static_cast<uint32_t>(Tag::kRowWait), static_cast<uint32_t>(item.source));
  if (!arrived) return false;
  start = trace.Start();
  const DispatchReceiver::Arrival arrival = receiver.Take(item.source, item.slot, item.part);
  const int row =
      s.first_row[arrival.source.local_expert * layout.num_ranks + item.source] + arrival.index;
  if (row >= layout.max_rows) {
    if (Lane() == 0) receiver.GiveUp(item.source, item.slot);
    return false;
  }
  device::WaveCopyRow(device::RowOf(p.recv_x, row, layout.row_vecs), arrival.row, arrival.part);
  if (item.part == 0 && Lane() == 0) p.sources[row] = arrival.source;
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
  if (block == num_blocks - 1) {
    device::PrefetchLoads(c.loads, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
  const uint64_t start = trace.Start();
  uint32_t last = device::kNoPeer;
  const DispatchReceiver receiver(c, epoch);
  const auto take = [&](int local_expert, int source, int32_t rows) {
    s.first_row[local_expert * layout.num_ranks + source] = rows;
  };
  bool ok = begun && receiver.AwaitCounts(take, &last);
  ok = ok && ComputeFirstRows(p, s, receiver);
  ok = ok && receiver.AwaitSources(&last);
  trace.Stop(start, static_cast<uint32_t>(Tag::kCountWait), last);
  const auto describe = [&](bool known, int begin, int step) {
    DescribeRows(p, s, known, begin, step);
  };
  // The block with the fewest rows writes the description.
  device::DescribeDelivery(&c.state->delivery, epoch, block == num_blocks - 1, ok, describe);
  if (!ok) return;
  if (block == num_blocks - 1) {
    device::CountLoads(
        c.loads, epoch, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), [&](int e) {
          return s.first_row[(e + 1) * layout.num_ranks] - s.first_row[e * layout.num_ranks];
        });
  }
  const int waves = blockDim.x / device::kWaveSize;
  int item = block * waves + Wave();
  int first = 0;
  for (int source = 0; source < layout.num_ranks && ok; ++source) {
    const int end = first + s.source_rows[source] * layout.row_parts;
    for (; item < end && ok; item += num_blocks * waves) {
      const int slot = (item - first) / layout.row_parts;
      const int part = item - first - slot * layout.row_parts;
      ok = ReceiveRow(p, s, receiver, {source, slot, part}, trace);
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
  return device::LaunchCooperative(PickKernel(traced), params, shape, stream);
}

hipError_t DispatchBlocksPerUnit(bool traced, const LaunchShape& shape, int* blocks) {
  return device::BlocksPerUnit(PickKernel(traced), shape, blocks);
}

}  // namespace octet::direct
