// Dispatch and the experts' first product in one kernel: a tile of the product starts when its rows
// have arrived, while others are under way.
//
//   this rank                                          every rank
//   ---------                                          ----------
//   topk_idx ── all blocks: dispatch_layout.h ───────► counts, destination offsets
//   routes ── all blocks: send_order.h ──────────────► order: choices by (rank, expert, token)
//   order, x ── waves that send: kWaveSize ──────────► row_origins[row], rows[holder],
//               neighbouring choices each              row_arrivals[row]
//   row_arrivals ── waves that fill: kWaveSize ──────► rows of other choices, sources, packets;
//                   neighbouring rows each             ready_groups[row / kWaveSize]
//   ready_groups, rows ── all blocks, in the end: ───► out
//                         a tile of the product
//
// Send. A token's elements cross the link once for each rank, to the first of its rows there in
// expert order, the holder. All of its choices are announced, each where the order has it, so that
// flags and descriptions are stored in neighbouring words. Experts of all ranks come in turn.
//
// Fill. Rows are completed in the order in which the product needs them. A holder is there when it
// has been announced; any other row is copied from its holder, which comes before it in the order
// of every sender.
//
// Multiply. Tiles are taken by ascending expert. Whoever loads a tile waits for its rows
// (arriving_walk.h). No sending or filling wave ever waits for a tile, so a tile's rows always
// come.
//
// Who moves rows. Some blocks send or fill with all of their waves before they multiply. In all
// blocks the waves that TileGemm has no use for (kFreeWaves) send and fill beside the others'
// products: most of them send first, the others fill from the start.
//
// DispatchRoles says what of this a call leaves out, so that it can be measured: the order, the
// copies, or tiles that start before their expert has all of its rows.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "bulk_copy.h"
#include "device_ops.h"
#include "kernels/ep/device/delivery.h"
#include "kernels/fused/arriving_walk.h"
#include "kernels/fused/kernels.h"
#include "kernels/fused/send_order.h"
#include "kernels/fused/with_tracer.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/gemm_trace.h"
#include "kernels/gemm/tile_walk.h"
#include "kernels/gemm/variants.h"
#include "kernels/high_throughput/dispatch_begin.h"
#include "kernels/high_throughput/dispatch_layout.h"
#include "kernels/high_throughput/phase.h"
#include "kernels/high_throughput/protocol.h"
#include "kernels/high_throughput/row_mover.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"
#include "tile_gemm.h"

namespace octet::fused {
namespace {

using device::GemmElement;
using device::Lane;
using device::Shuffle;
using high_throughput::CommonParams;
using high_throughput::DispatchParams;
using high_throughput::DispatchRoles;
using high_throughput::RowOrigin;
using high_throughput::SendEntry;
using high_throughput::Tag;

// A dispatch, and what its senders and fillers must know of its layout and its order.
struct Call {
  const DispatchGemmParams& p;
  const ExpertRows* expert_rows;  // [L]
  const int32_t* rank_entries;    // [R + 1] the first entry of each rank
  uint64_t epoch;

  __device__ int end_row() const {
    return expert_rows[p.dispatch.common.layout.num_local_experts - 1].end;
  }
};

// ---- shared memory: what Gemm::Run owns, in which LayoutShared and the first entries lie before;
// ---- then the experts' rows and the ranks' entries.

struct SharedSizes {
  size_t first_entries;  // their offset
  size_t expert_rows;    // their offset
  size_t bytes;
};

template <typename Gemm>
SharedSizes SizesOf(const Layout& layout) {
  const size_t before =
      high_throughput::SharedInts(layout, Gemm::kThreads / device::kMinWaveSize) * sizeof(int32_t);
  const auto aligned = [](size_t bytes) { return (bytes + 15) / 16 * 16; };
  const size_t first_entries = aligned(before);
  const size_t end = first_entries + static_cast<size_t>(FirstEntryInts(layout)) * sizeof(int32_t);
  const size_t expert_rows = aligned(std::max(Gemm::kSharedBytes, end));
  return {first_entries, expert_rows,
          expert_rows + static_cast<size_t>(layout.num_local_experts) * sizeof(ExpertRows) +
              static_cast<size_t>(layout.num_ranks + 1) * sizeof(int32_t)};
}

template <typename Gemm, bool gated, typename Trace>
struct KernelParams {
  DispatchGemmParams p;
  device::GemmCall<typename Gemm::Maps, GemmEpilogue<gated>, GemmTraceBeside<Gemm, Trace>> call;
  int32_t first_entries;  // SharedSizes
  int32_t expert_rows;    // SharedSizes
};

// ---- send

// The waves of blocks [first, first + blocks), neighbours in different blocks. The others join
// later, and so do the `free` waves of all blocks.
__device__ __forceinline__ device::WorkTeam TeamOf(int first, int blocks, bool free) {
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int block = static_cast<int>(blockIdx.x) - first;
  const bool begins = !free && block >= 0 && block < blocks;
  return {waves * blocks, begins ? device::Wave() * blocks + block : -1};
}

// Entries [first, first + n) of the order, n <= kWaveSize, all of one rank unless it is -1.
struct SendRange {
  int rank;
  int first;
  int n;
};

// Sends these entries. Called by a wave.
template <typename Trace>
__device__ void SendBatch(const Call& call, const SendRange& range, const Trace& trace) {
  const uint64_t start = trace.Start();
  const DispatchParams& d = call.p.dispatch;
  const CommonParams& c = d.common;
  const Layout& layout = c.layout;
  const high_throughput::DispatchSender to(c, call.epoch);
  const high_throughput::RowSender sender(c, call.epoch);
  device::VectorMover mover({});
  SendEntry entry = {0, -1, -1, 0};
  if (Lane() < range.n) entry = call.p.order[range.first + Lane()];
  int own_rank = range.rank;
  if (entry.row >= 0) {
    const int expert = d.topk_idx[entry.flat];
    if (own_rank < 0) own_rank = layout.experts().RankOf(expert);
    const int token = entry.flat / layout.topk;
    const int k = entry.flat - token * layout.topk;
    const int local = layout.experts().LocalExpert(expert, own_rank);
    const float weight = d.topk_weights != nullptr ? d.topk_weights[entry.flat] : 1.0F;
    sender.Describe(own_rank, entry.row,
                    {weight, high_throughput::PackOrigin(token, k, local),
                     high_throughput::WithSource(entry.place, c.peers.rank), entry.holder});
  }
  uint64_t holders = device::Ballot(entry.row >= 0 && entry.row == entry.holder);
  for (; holders != 0; holders &= holders - 1) {
    const int lane = __ffsll(static_cast<long long>(holders)) - 1;
    const int token = Shuffle(entry.flat, lane) / layout.topk;
    const int row = Shuffle(entry.row, lane);
    const int rank = Shuffle(own_rank, lane);
    mover.CopyToMany(device::RowOf(d.x, token, layout.row_vecs), layout.row_vecs, 1,
                     [&](int /*i*/) { return to.RowAt(rank, row); });
    if (layout.scale_words > 0) {
      device::WaveCopyWordsToMany(d.x_scales + static_cast<size_t>(token) * layout.scale_words,
                                  layout.scale_words, 1,
                                  [&](int /*i*/) { return to.ScalesAt(rank, row); });
    }
  }
  mover.Finish();
  sender.Announce(own_rank, entry.row, high_throughput::SourceOfPlace(entry.place));
  trace.Stop(start, static_cast<uint32_t>(Tag::kSendBatch),
             range.rank >= 0 ? static_cast<uint32_t>(range.rank) : device::kNoPeer);
}

// The batches of a dispatch, in the order in which they are sent.
class SendBatches {
 public:
  __device__ explicit SendBatches(const Call& call)
      : call_(call),
        by_token_(call.p.roles.by_token),
        entries_(call.p.dispatch.num_tokens * layout().topk) {
    if (by_token_) return;
    entries_ = 0;  // of the rank that has most
    for (int r = 0; r < layout().num_ranks; ++r) {
      const int entries = EntriesBefore(r + 1) - EntriesBefore(r);
      entries_ = entries > entries_ ? entries : entries_;
    }
  }

  __device__ int size() const {
    const int batches = (entries_ + device::kWaveSize - 1) / device::kWaveSize;
    return by_token_ ? batches : batches * layout().num_ranks;
  }
  // By expert: the ranks take turns, beginning with the one after this, so that all links carry
  // equal load. May have no entries.
  __device__ SendRange At(int i) const {
    if (by_token_) return Range(-1, i * device::kWaveSize, entries_);
    const int ranks = layout().num_ranks;
    const int batch = i / ranks;
    const int rank = (call_.p.dispatch.common.peers.rank + 1 + i - batch * ranks) % ranks;
    return Range(rank, EntriesBefore(rank) + batch * device::kWaveSize, EntriesBefore(rank + 1));
  }

 private:
  static __device__ SendRange Range(int rank, int first, int end) {
    const int left = end - first;
    return {rank, first, left < device::kWaveSize ? left : device::kWaveSize};
  }
  __device__ const Layout& layout() const { return call_.p.dispatch.common.layout; }
  __device__ int EntriesBefore(int rank) const { return call_.rank_entries[rank]; }

  const Call& call_;
  bool by_token_;
  int entries_;
};

template <typename Trace>
__device__ __forceinline__ void SendAll(const Call& call, bool free, const Trace& trace) {
  const SendBatches batches(call);
  const uint64_t start = trace.Start();
  if (!AwaitOrder(call.p, call.epoch)) return;
  trace.Stop(start, static_cast<uint32_t>(Tag::kAwaitOrder));
  const device::WorkTeam team = TeamOf(0, call.p.roles.send_blocks, free);
  device::WorkQueue* queue = &call.p.dispatch.common.state->send_batches;
  for (int i = device::FirstWork(queue, call.epoch, team); i < batches.size();
       i = device::NextWork(queue, call.epoch, team)) {
    const SendRange range = batches.At(i);
    if (range.n > 0) SendBatch(call, range, trace);
  }
}

// ---- fill

// The rank that sends `row`: only for those that wait for it in vain.
__device__ int SourceOf(const Call& call, int row) {
  const CommonParams& c = call.p.dispatch.common;
  const Layout& layout = c.layout;
  const int me = c.peers.rank;
  const int first_expert = layout.experts().FirstExpert(me);
  int local = 0;
  while (local + 1 < layout.num_local_experts && call.expert_rows[local + 1].first <= row) ++local;
  int end = call.expert_rows[local].first;
  for (int source = 0; source < layout.num_ranks; ++source) {
    end += static_cast<int>(device::CountOf(device::LoadRelaxed<device::Scope::kSystem>(
        layout.Count(c.peers.base[me], call.epoch, source, first_expert + local))));
    if (row < end) return source;
  }
  return -1;
}

// Adds the lanes' rows to those of their experts that are complete. `expert`: -1 in lanes without a
// row. Called by a wave.
__device__ __forceinline__ void CountRows(uint64_t* ready_rows, int expert) {
  device::SyncWave();
  if (Lane() == 0) device::FenceRelease<device::Scope::kDevice>();
  for (uint64_t left = device::Ballot(expert >= 0); left != 0;) {
    const int first = Shuffle(expert, __ffsll(static_cast<long long>(left)) - 1);
    const uint64_t same = device::Ballot(expert == first);
    if (Lane() == 0) {
      device::FetchAddRelaxed<device::Scope::kDevice>(ready_rows + first,
                                                      static_cast<uint64_t>(__popcll(same)));
    }
    left &= ~same;
  }
}

// Completes rows [first, first + kWaveSize), as far as there are such. Called by a wave. Returns
// false if some did not arrive.
template <typename Trace>
__device__ __forceinline__ bool FillGroup(const Call& call, int first, const Trace& trace) {
  uint64_t start = trace.Start();
  const DispatchParams& d = call.p.dispatch;
  const CommonParams& c = d.common;
  const Layout& layout = c.layout;
  const high_throughput::DispatchReceiver rows(c, call.epoch);
  const high_throughput::RowReceiver receiver(c, call.epoch);
  const auto source_of = [&](int row) { return SourceOf(call, row); };
  const int row = first + Lane() < call.end_row() ? first + Lane() : -1;
  int combine_slot = 0;
  int last_lane = -1;
  if (!receiver.Await(row, source_of, &combine_slot, &last_lane)) return false;
  RowOrigin origin = {0.0F, 0, 0, -1};
  if (row >= 0) origin = receiver.OriginOf(row);
  const bool is_copy = row >= 0 && origin.holder != row;
  int unused = 0;
  if (!receiver.Await(is_copy ? origin.holder : -1, source_of, &unused, &last_lane)) return false;
  uint32_t last = device::kNoPeer;
  if constexpr (Trace::kRecords) {
    // A row's holder is of the same rank.
    if (last_lane >= 0) {
      const int source = high_throughput::SourceOfPlace(origin.place);
      last = static_cast<uint32_t>(Shuffle(source, last_lane));
    }
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kAwaitRows), last);
  start = trace.Start();
  if (row >= 0) {
    using high_throughput::LocalExpertOf;
    using high_throughput::TokenOf;
    using high_throughput::TopkOf;
    d.sources[row] = {high_throughput::SourceOfPlace(origin.place), TokenOf(origin.origin),
                      TopkOf(origin.origin), LocalExpertOf(origin.origin)};
    d.row_weights[row] = origin.weight;
    receiver.Keep(row, origin, combine_slot);
  }
  device::VectorMover mover({});
  mover.Acquired();
  for (uint64_t copies = device::Ballot(is_copy); copies != 0; copies &= copies - 1) {
    const int lane = __ffsll(static_cast<long long>(copies)) - 1;
    const int holder = Shuffle(origin.holder, lane);
    mover.CopyToMany(rows.RowAt(holder), layout.row_vecs, 1,
                     [&](int /*i*/) { return rows.RowAt(first + lane); });
    if (layout.scale_words > 0) {
      device::WaveCopyWordsToMany(rows.ScalesAt(holder), layout.scale_words, 1,
                                  [&](int /*i*/) { return rows.ScalesAt(first + lane); });
    }
  }
  mover.Finish();
  device::BulkFenceGlobal();  // the copy unit reads the rows next
  if (call.p.roles.whole_experts) {
    CountRows(call.p.ready_rows, row >= 0 ? high_throughput::LocalExpertOf(origin.origin) : -1);
  } else if (Lane() == 0) {
    device::StoreRelease<device::Scope::kDevice>(call.p.ready_groups + first / device::kWaveSize,
                                                 call.epoch);
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kFillRows), static_cast<uint32_t>(first));
  return true;
}

// Completes all rows, or withdraws the call's delivery.
template <typename Trace>
__device__ __forceinline__ void FillAll(const Call& call, bool free, const Trace& trace) {
  const DispatchRoles& roles = call.p.roles;
  const int groups = (call.end_row() + device::kWaveSize - 1) / device::kWaveSize;
  const device::WorkTeam team = TeamOf(roles.send_blocks, roles.fill_blocks, free);
  device::WorkQueue* queue = &call.p.dispatch.common.state->row_groups;
  for (int i = device::FirstWork(queue, call.epoch, team); i < groups;
       i = device::NextWork(queue, call.epoch, team)) {
    if (FillGroup(call, i * device::kWaveSize, trace)) continue;
    device::WithdrawDelivery(&call.p.dispatch.common.state->delivery, call.epoch,
                             [&](bool /*known*/, int first, int step) {
                               high_throughput::ClearDescription(call.p.dispatch, first, step);
                             });
    return;
  }
}

// Moves rows while other waves multiply. `wave`: its number among the `waves` of a block that do.
template <typename Trace>
__device__ __forceinline__ void MoveRowsBeside(const Call& call, int wave, int waves,
                                               const Trace& trace) {
  // Two of three: the first tiles need waves that fill as much. Measured in bench/PERFORMANCE.md.
  if (3 * wave < 2 * waves) SendAll(call, true, trace);
  FillAll(call, true, trace);
}

// ---- the kernel

// Begins the dispatch as its own kernel would. Returns false if the layout is not known.
template <typename Trace>
__device__ bool BeginDispatch(const DispatchGemmParams& p, const LayoutShared& s, int32_t* shared,
                              uint64_t* epoch, const Trace& trace) {
  const DispatchParams& d = p.dispatch;
  const CommonParams& c = d.common;
  const high_throughput::Share share(d);
  const uint64_t start = trace.Start();
  bool ok = device::BeginCall(c.failure, &c.state->dispatch, gridDim.x, epoch);
  if (ok && blockIdx.x == 0 && threadIdx.x == 0) {
    // This call does without them, and the next one may not.
    device::RenewWork(&c.state->dispatch_sends, *epoch);
    device::RenewWork(&c.state->dispatch_receives, *epoch);
    // The counts of this block's share publish these stores to the whole grid.
    device::BeginWork(&c.state->send_batches, *epoch);
    device::BeginWork(&c.state->row_groups, *epoch);
    device::StoreRelaxed<device::Scope::kDevice>(&c.state->next_unit, 0);
    for (int e = 0; e < c.layout.num_local_experts && p.roles.whole_experts; ++e) {
      device::StoreRelaxed<device::Scope::kDevice>(p.ready_rows + e, uint64_t{0});
    }
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kBegin));
  ok = ok && high_throughput::MakeLayoutKnown({d, s, *epoch}, share, shared, trace);
  if (blockIdx.x == 0) high_throughput::KeepOffsets(c, s, ok);
  const bool describes = blockIdx.x == gridDim.x - 1;
  if (describes && *epoch != 0) high_throughput::CountRows(d, s, *epoch, ok);
  device::DescribeDelivery(&c.state->delivery, *epoch, describes, ok,
                           [&](bool known, int first, int step) {
                             high_throughput::DescribeRows(d, s, known, first, step);
                           });
  return ok;
}

// Copies where the experts' rows lie, and where the ranks' entries begin, to tables that stay.
__device__ void CopyTables(const CommonParams& c, const LayoutShared& s, const int32_t* first_entry,
                           ExpertRows* rows, int32_t* rank_entries) {
  const Layout& layout = c.layout;
  const int32_t* first_row = s.first_row() + layout.experts().FirstExpert(c.peers.rank);
  for (int e = static_cast<int>(threadIdx.x); e < layout.num_local_experts;
       e += static_cast<int>(blockDim.x)) {
    rows[e] = {first_row[e], first_row[e] + s.counts()[e]};
  }
  for (int r = static_cast<int>(threadIdx.x); r <= layout.num_ranks;
       r += static_cast<int>(blockDim.x)) {
    rank_entries[r] = first_entry[r * layout.num_local_experts];
  }
}

template <typename Gemm, bool gated, typename Trace>
__global__ void __launch_bounds__(Gemm::kThreads, 1)
    DispatchGemmKernel(const __grid_constant__ KernelParams<Gemm, gated, Trace> params) {
  HIP_DYNAMIC_SHARED(device::GemmSharedBlock, memory)
  char* const bytes = reinterpret_cast<char*>(memory);
  auto* const shared = reinterpret_cast<int32_t*>(memory);
  const DispatchGemmParams& p = params.p;
  const CommonParams& c = p.dispatch.common;
  const LayoutShared s(shared, c.layout);
  auto* const expert_rows = reinterpret_cast<ExpertRows*>(bytes + params.expert_rows);
  auto* const rank_entries = reinterpret_cast<int32_t*>(expert_rows + c.layout.num_local_experts);
  auto* const first_entry = reinterpret_cast<int32_t*>(bytes + params.first_entries);
  const Trace trace(c.trace, 0);
  uint64_t epoch = 0;
  const bool ok = BeginDispatch(p, s, shared, &epoch, trace);
  const Call call = {p, expert_rows, rank_entries, epoch};
  if (ok) {
    FindFirstEntries(c, epoch, first_entry);
    CopyTables(c, s, first_entry, expert_rows, rank_entries);
    const uint64_t start = trace.Start();
    OrderShare(p, s, first_entry, epoch);
    trace.Stop(start, static_cast<uint32_t>(Tag::kOrder));
    const int block = static_cast<int>(blockIdx.x);
    if (block < p.roles.send_blocks) SendAll(call, false, trace);
    if (block < p.roles.send_blocks + p.roles.fill_blocks) FillAll(call, false, trace);
  }
  // The copy unit writes where this block has read and written.
  device::BulkFenceShared();
  __syncthreads();
  if (!Gemm::AllOfCluster(ok, bytes)) return;
  const ReadyRows ready = {p.ready_groups, p.roles.whole_experts ? p.ready_rows : nullptr,
                           expert_rows, epoch, c.failure};
  const TileWalk<Gemm> walk(expert_rows, c.layout.num_local_experts, params.call.operands.n);
  Gemm::Run(params.call, ArrivingWalk<Gemm>(walk, ready), bytes, [&](int wave) {
    const int first = Gemm::kThreads / device::kWaveSize - Gemm::kFreeWaves;
    MoveRowsBeside(call, wave, Gemm::kFreeWaves, Trace(c.trace, first));
  });
}

// The kernel of one variant.
template <GemmTiles tiles, GemmElement element, bool gated, typename Trace>
struct Variant {
  using Gemm = device::TileGemm<tiles, element>;
  static constexpr auto kKernel = DispatchGemmKernel<Gemm, gated, Trace>;

  static LaunchShape Shape(const Layout& layout, int blocks) {
    return {
        .blocks = blocks, .threads = Gemm::kThreads, .shared_bytes = SizesOf<Gemm>(layout).bytes};
  }
  static hipError_t Load(const LaunchShape& shape) {
    return device::LoadKernelWithShared(kKernel, shape.shared_bytes);
  }
  static hipError_t BlocksPerUnit(const LaunchShape& shape, int* blocks) {
    return device::BlocksPerUnit(kKernel, shape, blocks);
  }
  static hipError_t Launch(const FusedParams& both, const LaunchShape& shape, hipStream_t stream) {
    const GroupedGemmParams& product = both.product;
    KernelParams<Gemm, gated, Trace> params = {};
    params.p = both.p;
    params.call.operands = product.operands;
    params.call.epilogue = {product.bias, product.row_scale, product.operands.n, product.swiglu};
    params.call.next_unit = product.next_unit;
    if constexpr (Trace::kRecords) params.call.target = product.trace;
    const SharedSizes sizes = SizesOf<Gemm>(both.p.dispatch.common.layout);
    params.first_entries = static_cast<int32_t>(sizes.first_entries);
    params.expert_rows = static_cast<int32_t>(sizes.expert_rows);
    const hipError_t error = Gemm::MakeMaps(product.operands, &params.call.maps);
    if (error != hipSuccess) return error;
    void* args[] = {&params};
    return device::LaunchTileGemm<Gemm>(
        kKernel, {.blocks = shape.blocks, .shared_bytes = shape.shared_bytes, .cooperative = true},
        args, stream);
  }
};

// use(Variant<...>()) with the variant of these template arguments.
template <typename Use>
auto WithVariant(const GroupedGemmVariant& variant, Use use) {
  return WithRowElement(variant.element, [&](auto element) {
    return WithBool(variant.gated, [&](auto gated) {
      return WithTracer(variant.traced, [&]<typename Trace>(std::type_identity<Trace> /*tracer*/) {
        return variant.tiles == GemmTiles::kMedium
                   ? use(Variant<GemmTiles::kMedium, element(), gated(), Trace>())
                   : use(Variant<GemmTiles::kWide, element(), gated(), Trace>());
      });
    });
  });
}

}  // namespace

LaunchShape DispatchGemmShape(const GroupedGemmVariant& variant, const Layout& layout, int blocks) {
  return WithVariant(variant, [&](auto kernel) { return decltype(kernel)::Shape(layout, blocks); });
}

hipError_t PrepareDispatchGemm(const GroupedGemmVariant& variant, const LaunchShape& shape) {
  return WithVariant(variant, [&](auto kernel) { return decltype(kernel)::Load(shape); });
}

hipError_t DispatchGemmBlocksPerUnit(const GroupedGemmVariant& variant, const LaunchShape& shape,
                                     int* blocks) {
  return WithVariant(variant,
                     [&](auto kernel) { return decltype(kernel)::BlocksPerUnit(shape, blocks); });
}

hipError_t LaunchDispatchGemm(const FusedParams& params, const GroupedGemmVariant& variant,
                              const LaunchShape& shape, hipStream_t stream) {
  return WithVariant(variant,
                     [&](auto kernel) { return decltype(kernel)::Launch(params, shape, stream); });
}

}  // namespace octet::fused
