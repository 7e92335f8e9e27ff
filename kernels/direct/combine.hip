// direct combine: every expert output goes directly to the slot of its (token, k) on its origin.
//
//   this rank                                       origin o of a row
//   ---------                                       -----------------
//   expert_out [rows][H] ── a wave for each part ─► combine_rows[token·K + k][H]
//     (· expert_scale, rounded, if given)           combine_flags[token·K + k]
//
//   combine_rows, combine_flags ── waves that share a token ─► y [T][H] = Σ_k weight · row
//
// Send. Rows are packed, so that an even walk over them is an even walk over experts. Before its
// first row a block waits for the credits, which say that the origins have summed their last call.
//
// Receive. A wave takes one part of one token's row, waits for the token's K flags (a lane each)
// and sums in float32, k ascending; each product and each sum is rounded. Rows of y that leave
// while the kernel runs (kernels/ep/device/row_departures.h) come first, but rows are sent by
// experts, so that few tokens are complete long before the end.
//
// Both run concurrently in one grid, in separate blocks, or in two launches one after the other.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/direct/kernels.h"
#include "kernels/direct/protocol.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/row_departures_device.h"
#include "kernels/ep/device/row_sum.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/block_counter.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"

namespace octet::direct {
namespace {

using device::Vec16;
using device::Wave;

// Rows of a token that a lane has in flight.
constexpr int kRowsInFlight = 8;

// Returns part `part` of row `row` of expert_out to its origin.
template <typename Codec>
__device__ void SendRow(const CombineParams& p, const CombineSender& sender,
                        const RowSource& origin, int row, int part) {
  const Layout& layout = p.common.layout;
  Vec16* dst = sender.At(origin);
  const Vec16* src = device::RowOf(p.expert_out, row, layout.row_vecs);
  const device::RowPart range = device::PartOfRow(part, layout.row_parts, layout.row_vecs);
  if (p.expert_scale != nullptr) {
    const float scale = p.expert_scale[origin.local_expert];
    device::WaveTransformRow(dst, src, range,
                             [scale](const Vec16& v) { return device::Scale<Codec>(v, scale); });
  } else {
    device::WaveCopyRow(dst, src, range);
  }
  sender.Publish(origin, part);
}

template <typename Codec, typename Trace>
__device__ void Send(const CombineParams& p) {
  __shared__ uint32_t granted;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Trace trace(c.trace);
  const device::Credits credits(c, layout.combine_credits);
  const int waves = blockDim.x / device::kWaveSize;
  const int step = c.send_blocks * waves;
  int item = blockIdx.x * waves + Wave();
  // Load the first row's origin before it is known whether that row exists.
  const int first_row = item / layout.row_parts;
  RowSource origin = p.sources[first_row < layout.max_rows ? first_row : 0];
  const int items = p.expert_offsets[layout.num_local_experts] * layout.row_parts;
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->combine_send, static_cast<uint32_t>(c.send_blocks));
  if (epoch == 0) return;
  // The block with the fewest rows returns the credits.
  if (static_cast<int>(blockIdx.x) == c.send_blocks - 1) {
    ReturnCredits(c, c.state->dispatch_receive.epoch - 1, epoch - 1);
  }
  const uint64_t credit_start = trace.Start();
  credits.Await(c, epoch - 1, Site::kCombineCredit, &granted);
  __syncthreads();
  trace.Stop(credit_start, static_cast<uint32_t>(Tag::kCombineCredit), device::kNoPeer);
  const CombineSender sender(c, epoch);
  if (granted != 0) {
    while (item < items) {
      const int row = item / layout.row_parts;
      const uint64_t start = trace.Start();
      SendRow<Codec>(p, sender, origin, row, item - row * layout.row_parts);
      trace.Stop(start, static_cast<uint32_t>(Tag::kCombineSend),
                 static_cast<uint32_t>(origin.rank));
      item += step;
      if (item < items) origin = p.sources[item / layout.row_parts];
    }
  }
  if (c.source_flags &&
      device::LastBlock(&c.state->combine_senders_done, static_cast<uint32_t>(c.send_blocks))) {
    sender.AnnounceEnd();
  }
}

// Computes y of one token from the outputs in `present`.
template <typename Codec>
__device__ void SumToken(const CombineParams& p, const CombineReceiver& receiver, int token,
                         uint64_t present, const device::Columns& columns) {
  const Layout& layout = p.common.layout;
  const int flat = token * layout.topk;
  const Vec16* rows = receiver.Rows(token);
  device::SumRows<Codec, 1, kRowsInFlight>(
      device::RowOf(p.y, token, layout.row_vecs),
      device::WeightedRows{
          layout.topk, static_cast<uint32_t>(present),
          [&](int k) { return device::RowOf(rows, k, layout.row_vecs); },
          [&](int k) { return p.topk_weights != nullptr ? p.topk_weights[flat + k] : 1.0F; }},
      static_cast<const Vec16*>(p.bias), columns);
}

template <typename Codec, typename Trace>
__device__ void Receive(const CombineParams& p) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Trace trace(c.trace);
  const int block = static_cast<int>(blockIdx.x) - c.send_blocks;
  const int num_blocks = static_cast<int>(gridDim.x) - c.send_blocks;
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->combine_receive, static_cast<uint32_t>(num_blocks));
  if (epoch == 0) return;
  const int waves = blockDim.x / device::kWaveSize;
  const int num_waves = num_blocks * waves;
  const int parts = layout.row_parts;

  // If there are more waves than parts of tokens, `shares` waves share each part.
  const int part_vecs = (layout.row_vecs + parts - 1) / parts;
  const int most_shares = (part_vecs + device::kWaveSize - 1) / device::kWaveSize;
  const int token_parts = p.num_tokens * parts;
  int shares = token_parts > 0 ? num_waves / token_parts : 1;
  shares = shares < 1 ? 1 : (shares < most_shares ? shares : most_shares);

  const CombineReceiver receiver(c, epoch);
  bool ok = true;
  if (c.source_flags) {
    const uint64_t start = trace.Start();
    uint32_t last = device::kNoPeer;
    ok = receiver.AwaitSources(&last);
    trace.Stop(start, static_cast<uint32_t>(Tag::kCombineWait), last);
  }
  for (int item = block * waves + Wave(); item < token_parts * shares && ok; item += num_waves) {
    const int next = device::InOrderOfDeparture(p.departures, item, token_parts * shares);
    const int token_part = next / shares;
    const int share = next - token_part * shares;
    const int token = token_part / parts;
    const int part = token_part - token * parts;
    uint64_t start = trace.Start();
    CombineReceiver::Outputs outputs = {};
    ok = receiver.Await(p.topk_idx, token, part, &outputs);
    if constexpr (Trace::kRecords) {
      const uint32_t last = outputs.last_k < 0
                                ? device::kNoPeer
                                : static_cast<uint32_t>(layout.experts().RankOf(
                                      p.topk_idx[token * layout.topk + outputs.last_k]));
      trace.Stop(start, static_cast<uint32_t>(Tag::kCombineWait), last);
    }
    if (ok) {
      start = trace.Start();
      const device::RowPart range = device::PartOfRow(part, parts, layout.row_vecs);
      const device::Columns columns = {range.begin + share * device::kWaveSize, range.end,
                                       shares * device::kWaveSize};
      SumToken<Codec>(p, receiver, token, outputs.present, columns);
      device::MarkStored(p.departures, token, columns);
      trace.Stop(start, static_cast<uint32_t>(Tag::kReduce), static_cast<uint32_t>(token));
    }
  }
}

template <typename Codec, typename Trace>
__global__ void __launch_bounds__(kMaxThreads, 2) Combine(const CombineParams p) {
  if (static_cast<int>(blockIdx.x) < p.common.send_blocks) {
    Send<Codec, Trace>(p);
  } else {
    Receive<Codec, Trace>(p);
  }
}

using Kernel = void (*)(CombineParams);

Kernel PickKernel(bool fp16, bool traced) {
  if (fp16) {
    return traced ? Combine<device::Fp16Codec, device::Tracer>
                  : Combine<device::Fp16Codec, device::NoTracer>;
  }
  return traced ? Combine<device::Bf16Codec, device::Tracer>
                : Combine<device::Bf16Codec, device::NoTracer>;
}

}  // namespace

hipError_t LoadCombine(bool fp16, bool traced) {
  return device::LoadKernel(PickKernel(fp16, traced));
}

hipError_t LaunchCombine(const CombineParams& params, bool fp16, bool traced,
                         const LaunchShape& shape, hipStream_t stream) {
  return device::LaunchCooperative(PickKernel(fp16, traced), params, shape, stream);
}

hipError_t CombineBlocksPerUnit(bool fp16, bool traced, const LaunchShape& shape, int* blocks) {
  return device::BlocksPerUnit(PickKernel(fp16, traced), shape, blocks);
}

}  // namespace octet::direct
