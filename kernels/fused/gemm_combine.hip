// The experts' second product and combine in one kernel: outputs of the first columns leave while
// the product of later columns is computed.
//
//   this rank                                           origin o of a token
//   ---------                                           -------------------
//   a, b ── blocks that multiply: pass by pass, ──────► expert_out[row][columns of the pass]
//           a pass being some columns of all rows       done[pass], when all of them have stored
//   done, expert_out, packets ── a wave for a part ───► combine_rows[token][slot]
//           of each token, parts in the order of        combine_flags[token][part][slot]
//           passes (combine.hip)
//   combine_rows, combine_flags ── the same waves ────► y [T][H]
//
// A row of the output is complete only when its last pass is, but a sum over a token's rows needs
// one column of each, whichever expert they are of. So the product is cut by columns, not by
// experts, and a token's outputs leave in as many parts.
//
// Some blocks combine from the start; the others join them when nothing is left to multiply. All
// waves take tasks from one queue, in this order, for P parts:
//
//   send part 0 | send part 1 | receive part 0 | send part 2 | receive part 1 | ... | receive P - 1
//
// No task waits for a later one, on this rank or another: what is sent waits for a pass, and those
// who multiply wait for nobody; what is received waits for tasks of peers that come earlier in
// their order. So the kernel ends however many blocks combine.
//
// If the product scatters (Fusion::kEpilogue), its rows have no stop in between: the blocks that
// multiply store each at its origin, in combine_rows, and sending a part is publishing its flags.
// All rows of the order `flat` do so; a sum over a token's rows needs the stop.
#include <hip/hip_runtime.h>

#include <cstddef>
#include <type_traits>

#include "device_ops.h"
#include "kernels/ep/device/interleaved_walk.h"
#include "kernels/fused/kernels.h"
#include "kernels/fused/pass_walk.h"
#include "kernels/fused/scatter_epilogue.h"
#include "kernels/fused/with_tracer.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/gemm_trace.h"
#include "kernels/gemm/tile_walk.h"
#include "kernels/gemm/variants.h"
#include "kernels/high_throughput/combine_token.h"
#include "kernels/high_throughput/phase.h"
#include "kernels/high_throughput/protocol.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"
#include "tile_gemm.h"

namespace octet::fused {
namespace {

using device::GemmElement;
using high_throughput::CombineParams;
using high_throughput::CombineRows;
using high_throughput::CommonParams;
using Rows = GemmCombineVariant::Rows;

// ---- shared memory: what Gemm::Run owns, then what stays while it runs.

template <typename Gemm>
size_t SharedBytes(int experts) {
  return Gemm::kSharedBytes + sizeof(device::InterleavedWalk) +
         static_cast<size_t>(experts) * sizeof(ExpertRows);
}

template <bool scatters>
using Epilogue = std::conditional_t<scatters, ScatterEpilogue, GemmEpilogue<false>>;

template <typename Gemm, bool scatters, typename Trace>
struct KernelParams {
  CombineParams combine;
  device::GemmCall<typename Gemm::Maps, Epilogue<scatters>, GemmTraceBeside<Gemm, Trace>> call;
  const int32_t* offsets;
  const int32_t* counts;
  int combine_blocks;
};

// ---- tasks

struct Task {
  bool sends;
  int part;
  int item;  // some packets, or a token
};

// The order of tasks (above).
struct TaskOrder {
  int sends;     // of a part
  int receives;  // of a part
  int parts;

  __device__ int total() const { return (sends + receives) * parts; }
  __device__ Task At(int i) const {
    if (i < sends) return {true, 0, i};
    i -= sends;
    const int both = sends + receives;
    const int round = both > 0 ? i / both : 0;
    i -= round * both;
    if (round + 1 < parts && i < sends) return {true, round + 1, i};
    return {false, round, round + 1 < parts ? i - sends : i};
  }
};

// Publishes the choices of item(0) to item(n - 1), which the product has stored at their origins.
template <typename Item, typename Trace>
__device__ void PublishParts(const high_throughput::CombineSender& sender, int n, Item item,
                             const Trace& trace) {
  const uint64_t start = trace.Start();
  // By each lane, since each stores flags.
  device::FenceRelease<device::Scope::kSystem>();
  for (int i = 0; i < n; ++i) {
    const high_throughput::PacketPart part = item(i);
    const device::Packet* packet = sender.Kept(part.source, part.slot);
    if (device::Lane() >= static_cast<int>(device::CountOf(packet->flag))) continue;
    const high_throughput::Choice mine = packet->choices()[device::Lane()];
    sender.PublishStored({part.source, high_throughput::TokenOf(mine.origin), -1}, mine, part.part);
  }
  trace.Stop(start, static_cast<uint32_t>(high_throughput::Tag::kCombineSend));
}

// How many packets' parts a task sends.
template <CombineRows kRows, bool scatters>
__device__ __forceinline__ int PacketsAtOnce(int packets, int waves) {
  if constexpr (!scatters) return high_throughput::PartsAtOnce<kRows>(packets, waves);
  constexpr int kMost = 32;  // releases are dear, but all waves should have some
  const int at_once = waves > 0 ? packets / waves : 1;
  return at_once < 1 ? 1 : (at_once < kMost ? at_once : kMost);
}

// What all blocks do once they have nothing to multiply.
template <typename Codec, CombineRows kRows, bool scatters, typename Trace>
__device__ void CombineAll(const CombineParams& p, const device::InterleavedWalk& walk,
                           uint64_t epoch, const device::WorkTeam& team, uint64_t tellers) {
  const CommonParams& c = p.common;
  const high_throughput::Layout& layout = c.layout;
  const Trace trace(c.trace, 0);
  const high_throughput::CombineSender sender(c, epoch);
  const high_throughput::CombineReceiver<high_throughput::kPerRank<kRows>> receiver(c, epoch);
  const int packets = walk.Total(layout.num_ranks);
  const int waves = static_cast<int>(gridDim.x * blockDim.x) / device::kWaveSize;
  const int at_once = PacketsAtOnce<kRows, scatters>(packets, waves);
  const TaskOrder order = {(packets + at_once - 1) / at_once, p.num_tokens, layout.combine_parts};
  device::WorkQueue* queue = &c.state->combine_sends;
  int done = 0;
  bool ok = true;
  for (int i = device::FirstWork(queue, epoch, team); i < order.total() && ok;
       i = device::NextWork(queue, epoch, team)) {
    const Task task = order.At(i);
    if (task.sends) {
      const uint64_t start = trace.Start();
      ok = AwaitPasses(c, epoch, tellers, task.part, &done);
      if (!ok) break;
      trace.Stop(start, static_cast<uint32_t>(high_throughput::Tag::kAwaitPass),
                 static_cast<uint32_t>(task.part));
      const int first = task.item * at_once;
      const auto item = [&](int j) {
        const auto place = walk.At(first + j, layout.num_ranks, c.peers.rank);
        return high_throughput::PacketPart{place.source, place.index, task.part};
      };
      const int n = packets - first < at_once ? packets - first : at_once;
      if constexpr (scatters) {
        PublishParts(sender, n, item, trace);
      } else {
        high_throughput::SendParts<Codec, kRows>(p, sender, n, item, trace);
      }
    } else {
      ok = layout.pull ? high_throughput::ReceiveToken<Codec, kRows, true>(p, receiver, task.item,
                                                                           task.part, trace)
                       : high_throughput::ReceiveToken<Codec, kRows, false>(p, receiver, task.item,
                                                                            task.part, trace);
    }
  }
}

// The waves of blocks [0, blocks), neighbours in different blocks.
__device__ __forceinline__ device::WorkTeam TeamOf(int blocks) {
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int block = static_cast<int>(blockIdx.x);
  return {waves * blocks, block < blocks ? device::Wave() * blocks + block : -1};
}

template <typename Gemm, typename Codec, CombineRows kRows, bool scatters, typename Trace>
__global__ void __launch_bounds__(Gemm::kThreads, 1)
    GemmCombineKernel(const __grid_constant__ KernelParams<Gemm, scatters, Trace> params) {
  HIP_DYNAMIC_SHARED(device::GemmSharedBlock, memory)
  char* const bytes = reinterpret_cast<char*>(memory);
  auto* const walk = reinterpret_cast<device::InterleavedWalk*>(bytes + Gemm::kSharedBytes);
  auto* const rows = reinterpret_cast<ExpertRows*>(walk + 1);
  const CombineParams& p = params.combine;
  const CommonParams& c = p.common;
  const device::GemmOperands& operands = params.call.operands;
  const int multiplying = static_cast<int>(gridDim.x) - params.combine_blocks;
  walk->Init(c.kept.packet_counts, c.layout.num_ranks);
  uint64_t epoch = device::BeginCall(c.failure, &c.state->combine, gridDim.x);
  if (epoch != 0) {
    if (blockIdx.x == 0) high_throughput::OpenCombine(c, epoch);
    FindExpertRows(operands, params.offsets, params.counts, rows);
  }
  __syncthreads();
  // Nothing is stored at a peer that is not done with the combine before.
  if constexpr (scatters) {
    if (epoch != 0 && !high_throughput::AwaitCombineCredits(c, epoch)) epoch = 0;
  }
  if (static_cast<int>(blockIdx.x) >= params.combine_blocks &&
      Gemm::AllOfCluster(epoch != 0, bytes)) {
    const Passes passes = {c.layout.combine_parts, c.layout.combine_vecs,
                           high_throughput::PassWord(c, epoch, 0), epoch, &c.failure};
    constexpr device::Scope kScope = scatters ? device::Scope::kSystem : device::Scope::kDevice;
    Gemm::Run(params.call, PassWalk<Gemm, kScope>(rows, operands.experts, passes, multiplying),
              bytes);
  }
  if (epoch == 0) return;
  if constexpr (!scatters) {
    if (!high_throughput::AwaitCombineCredits(c, epoch)) return;
  }
  CombineAll<Codec, kRows, scatters, Trace>(p, *walk, epoch, TeamOf(params.combine_blocks),
                                            static_cast<uint64_t>(multiplying) * Gemm::kTellers);
}

// The kernel of one variant.
template <GemmTiles tiles, bool fp16, Rows rows, typename Trace>
struct Variant {
  using Gemm = device::TileGemm<tiles, fp16 ? GemmElement::kFp16 : GemmElement::kBf16>;
  using Codec = std::conditional_t<fp16, device::Fp16Codec, device::Bf16Codec>;
  static constexpr bool kScatters = rows == Rows::kScattered;
  static constexpr CombineRows kRows =
      rows == Rows::kSums ? CombineRows::kSums : CombineRows::kChoices;
  static constexpr auto kKernel = GemmCombineKernel<Gemm, Codec, kRows, kScatters, Trace>;

  static LaunchShape Shape(int experts, int blocks) {
    return {
        .blocks = blocks, .threads = Gemm::kThreads, .shared_bytes = SharedBytes<Gemm>(experts)};
  }
  static hipError_t Load(const LaunchShape& shape) {
    return device::LoadKernelWithShared(kKernel, shape.shared_bytes);
  }
  static hipError_t BlocksPerUnit(const LaunchShape& shape, int* blocks) {
    return device::BlocksPerUnit(kKernel, shape, blocks);
  }
  static hipError_t Launch(const ProductCombineParams& both, const LaunchShape& shape,
                           hipStream_t stream) {
    const GroupedGemmParams& product = both.product;
    KernelParams<Gemm, kScatters, Trace> params = {};
    params.combine = both.p.combine;
    params.call.operands = product.operands;
    params.call.epilogue.bias = product.bias;
    params.call.epilogue.row_scale = product.row_scale;
    params.call.epilogue.n = product.operands.n;
    if constexpr (kScatters) {
      params.call.epilogue.sources = both.sources;
      params.call.epilogue.peers = params.combine.common.peers;
      params.call.epilogue.layout = params.combine.common.layout;
    }
    params.call.next_unit = product.next_unit;
    if constexpr (Trace::kRecords) params.call.target = product.trace;
    params.offsets = product.offsets;
    params.counts = product.counts;
    params.combine_blocks = both.combine_blocks;
    const hipError_t error = Gemm::MakeMaps(product.operands, &params.call.maps);
    if (error != hipSuccess) return error;
    void* args[] = {&params};
    return device::LaunchTileGemm<Gemm>(
        kKernel, {.blocks = shape.blocks, .shared_bytes = shape.shared_bytes, .cooperative = true},
        args, stream);
  }
};

template <typename Use>
auto WithRows(Rows rows, Use use) {
  switch (rows) {
    case Rows::kChoices:
      return use(std::integral_constant<Rows, Rows::kChoices>());
    case Rows::kSums:
      return use(std::integral_constant<Rows, Rows::kSums>());
    case Rows::kScattered:
      break;
  }
  return use(std::integral_constant<Rows, Rows::kScattered>());
}

// use(Variant<...>()) with the variant of these template arguments.
template <typename Use>
auto WithVariant(const GemmCombineVariant& variant, Use use) {
  return WithBool(variant.fp16, [&](auto fp16) {
    return WithRows(variant.rows, [&](auto rows) {
      return WithTracer(variant.traced, [&]<typename Trace>(std::type_identity<Trace> /*tracer*/) {
        return variant.tiles == GemmTiles::kMedium
                   ? use(Variant<GemmTiles::kMedium, fp16(), rows(), Trace>())
                   : use(Variant<GemmTiles::kWide, fp16(), rows(), Trace>());
      });
    });
  });
}

}  // namespace

LaunchShape GemmCombineShape(const GemmCombineVariant& variant, int experts, int blocks) {
  return WithVariant(variant,
                     [&](auto kernel) { return decltype(kernel)::Shape(experts, blocks); });
}

hipError_t PrepareGemmCombine(const GemmCombineVariant& variant, const LaunchShape& shape) {
  return WithVariant(variant, [&](auto kernel) { return decltype(kernel)::Load(shape); });
}

hipError_t GemmCombineBlocksPerUnit(const GemmCombineVariant& variant, const LaunchShape& shape,
                                    int* blocks) {
  return WithVariant(variant,
                     [&](auto kernel) { return decltype(kernel)::BlocksPerUnit(shape, blocks); });
}

hipError_t LaunchGemmCombine(const ProductCombineParams& params, const GemmCombineVariant& variant,
                             const LaunchShape& shape, hipStream_t stream) {
  return WithVariant(variant,
                     [&](auto kernel) { return decltype(kernel)::Launch(params, shape, stream); });
}

}  // namespace octet::fused
