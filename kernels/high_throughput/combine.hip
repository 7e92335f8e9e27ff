// high_throughput combine: each rank returns its experts' outputs for a token once over the link.
//
//   this rank                                            origin o of a token
//   ---------                                            -------------------
//   expert_out, packets ── a wave for each part of ────► combine_rows[token][slot][H]
//     a token: p = Σ weight · y over its experts here    combine_flags[token][part][slot]
//
//   combine_rows, combine_flags ── other waves, ───────► y [T][H] = Σ p over ranks (+ bias)
//                                  side by side
//
// Order `per_rank`: Σ in float32 over k ascending, rounded to the dtype; the origin adds the ranks'
// sums in float32, ascending, then the bias, and rounds. The weights arrived with the dispatch.
// Order `flat`: each choice's row crosses the link unchanged, to the slot of its k; the origin
// weights the rows and adds them in ascending k. If the caller works on rows of tokens
// (Output::kDeduplicated), it has already computed the first sum.
//
// With CombineMethod::kPull the rows stay on the experts' rank, in the memory of received rows, and
// the origin loads them from there after their flags.
//
// Rows are cut into parts, each with its own flag and wave, so that little work is left when the
// last part arrives. Waves take the parts from queues, in order, since sums of one row and of eight
// take very different times. Waves that find nothing left to send receive.
//
// Packets are taken from the sources in turn, so that the links to all origins carry equal load,
// and by ascending token, which is the order in which the origins sum; by descending token if rows
// of y leave while the kernel runs (kernels/ep/device/row_departures.h).
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/ep/device/interleaved_walk.h"
#include "kernels/ep/device/row_departures_device.h"
#include "kernels/high_throughput/combine_token.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "kernels/high_throughput/protocol.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"

namespace octet::high_throughput {
namespace {

using device::FirstWork;
using device::NextWork;

template <typename Codec, CombineRows kRows, typename Trace>
__global__ void __launch_bounds__(kCombineMaxThreads, 1) Combine(const CombineParams p) {
  __shared__ device::InterleavedWalk walk;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Trace trace(c.trace, TracedWave(c));
  uint64_t epoch = 0;
  if (c.send_waves > 0) {
    walk.Init(c.kept.packet_counts, layout.num_ranks);
    epoch = device::BeginCall(c.failure, &c.state->combine, gridDim.x);
    if (epoch == 0) return;
    if (blockIdx.x == 0) OpenCombine(c, epoch);
    if (!AwaitCombineCredits(c, epoch)) return;
  } else {
    epoch = device::BegunCall(c.failure, &c.state->combine);
    if (epoch == 0) return;
  }
  const int parts = layout.combine_parts;
  if (device::Wave() < c.send_waves) {
    const int items = walk.Total(layout.num_ranks) * parts;
    const device::WorkTeam team = SendTeam(c);
    device::WorkQueue* queue = &c.state->combine_sends;
    const CombineSender sender(c, epoch);
    const int at_once = PartsAtOnce<kRows>(items, team.waves);
    for (int i = FirstWork(queue, epoch, team) * at_once; i < items;
         i = NextWork(queue, epoch, team) * at_once) {
      const auto item = [&](int j) {
        const int next = device::InOrderOfDeparture(p.departures, i + j, items);
        const int packet = next / parts;
        const auto place = walk.At(packet, layout.num_ranks, c.peers.rank);
        return PacketPart{place.source, place.index, next - packet * parts};
      };
      SendParts<Codec, kRows>(p, sender, items - i < at_once ? items - i : at_once, item, trace);
    }
  }
  if (!c.receives) return;
  bool ok = true;
  const device::WorkTeam team = ReceiveTeam(c);
  device::WorkQueue* queue = &c.state->combine_receives;
  const CombineReceiver<kPerRank<kRows>> receiver(c, epoch);
  for (int i = FirstWork(queue, epoch, team); i < p.num_tokens * parts && ok;
       i = NextWork(queue, epoch, team)) {
    const int next = device::InOrderOfDeparture(p.departures, i, p.num_tokens * parts);
    const int token = next / parts;
    const int part = next - token * parts;
    ok = layout.pull ? ReceiveToken<Codec, kRows, true>(p, receiver, token, part, trace)
                     : ReceiveToken<Codec, kRows, false>(p, receiver, token, part, trace);
  }
}

using Kernel = void (*)(CombineParams);

template <typename Codec, typename Trace>
Kernel PickRows(CombineRows rows) {
  switch (rows) {
    case CombineRows::kChoices:
      return Combine<Codec, CombineRows::kChoices, Trace>;
    case CombineRows::kSums:
      return Combine<Codec, CombineRows::kSums, Trace>;
    case CombineRows::kReduced:
      break;
  }
  return Combine<Codec, CombineRows::kReduced, Trace>;
}

Kernel PickKernel(const CombineVariant& variant) {
  if (variant.fp16) {
    return variant.traced ? PickRows<device::Fp16Codec, device::Tracer>(variant.rows)
                          : PickRows<device::Fp16Codec, device::NoTracer>(variant.rows);
  }
  return variant.traced ? PickRows<device::Bf16Codec, device::Tracer>(variant.rows)
                        : PickRows<device::Bf16Codec, device::NoTracer>(variant.rows);
}

}  // namespace

hipError_t LoadCombine(const CombineVariant& variant) {
  return device::LoadKernel(PickKernel(variant));
}

hipError_t LaunchCombine(const CombineParams& params, const CombineVariant& variant,
                         const LaunchShape& shape, hipStream_t stream) {
  return device::LaunchCooperative(PickKernel(variant), params,
                                   {.blocks = shape.blocks, .threads = shape.threads}, stream);
}

hipError_t CombineBlocksPerUnit(const CombineVariant& variant, const LaunchShape& shape,
                                int* blocks) {
  return device::BlocksPerUnit(PickKernel(variant),
                               {.blocks = shape.blocks, .threads = shape.threads}, blocks);
}

}  // namespace octet::high_throughput
