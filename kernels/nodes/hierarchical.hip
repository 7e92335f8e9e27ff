// Dispatch: plan, pack, (exchange on the rail), split. Combine: (exchange), add.
//
//   x, topk_idx --plan--> slots [P][M], counts [P]
//       |
//      pack            node:      0            1 = own        2
//       |-> sent      rows     [ M rows     ][ unused   ][ M rows     ]   -> rail
//       |             chunks     [ 0 ][ 1 ]                [ 0 ][ 1 ]
//       |
//       '-> batch     rows     [ own rows ][ of 0 ][ of 2 ][ of 0 ][ of 2 ]   <- rail
//                     chunks     (there)     [ 0         ]   [ 1         ]
//           (fixed blocks: M rows of each node; counted: as many as there are, without gaps)
//   batch records --split--> ids, weights, scales of the intranode dispatch, ends of chunks
//
// All records and the rows of chunk 0 cross first. Split and the intranode dispatch follow; while
// this one sends the rank's own rows and those of chunk 0, the other chunks cross on another
// stream, each followed by `mark`, and the dispatch waits for a chunk before it reads its rows.
//
// Combine uses the same memory: the intranode combine writes its sums over `batch`, the rows that
// return from other nodes arrive in `sent`, each where its token left from, and `add` sums them. In
// chunks, the combine makes the last rows first; on the other stream `await rows` waits until those
// of a chunk are complete, from the last chunk to the first, and they return while the combine
// makes the rest, of which the rank's own rows are the end.
#include <hip/hip_runtime.h>

#include <algorithm>

#include "device_ops.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/row_arrivals_device.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/row_departures_device.h"
#include "kernels/ep/device/row_sum.h"
#include "kernels/ep/device/wave_scan.h"
#include "kernels/nodes/kernels.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/wait.h"

namespace octet::hierarchical {
namespace {

using device::Lane;
using device::Vec16;

constexpr int kMaxPlanThreads = 1024;
constexpr uint32_t kOne = 0x3f800000;  // the bits of 1.0F

// Returns whether `token` goes to `node`. The block of the rank's own node also reports choices
// that are wrong.
__device__ bool GoesTo(const PlanParams& p, int node, int token) {
  const int topk = p.shape.topk;
  const int32_t* ids = p.topk_idx + static_cast<size_t>(token) * topk;
  bool goes = false;
  for (int k = 0; k < topk; ++k) {
    const int32_t id = ids[k];
    const bool expert = p.shape.experts.IsExpert(id);
    goes = goes || (expert && p.shape.experts.RankOf(id) == node);
    if (node != p.shape.node || id == -1) continue;
    if (!expert || device::ChosenBefore(ids, k, id)) {
      device::RefuseChoice(p.failure, p.shape.experts, token * topk + k, id);
    }
  }
  return goes;
}

// A block for each node.
__global__ void __launch_bounds__(kMaxPlanThreads) Plan(const PlanParams p) {
  __shared__ int32_t before[kMaxPlanThreads];
  const auto node = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  int32_t* const slots = p.slots + static_cast<size_t>(node) * p.shape.max_tokens;
  int32_t count = 0;
  for (int first = 0; first < p.num_tokens; first += threads) {
    const int token = first + thread;
    const bool goes = token < p.num_tokens && GoesTo(p, node, token);
    before[thread] = goes ? 1 : 0;
    __syncthreads();
    const int32_t total = device::BlockExclusiveScan(before, threads);
    if (token < p.num_tokens) slots[token] = goes ? count + before[thread] : -1;
    count += total;
    __syncthreads();
  }
  if (thread != 0) return;
  p.counts[node] = count;
  if (p.host != nullptr && !device::HasFailed(p.failure)) {
    device::StoreRelaxed<device::Scope::kSystem>(
        &p.host->of_node[node], uint64_t{p.call} << 32 | static_cast<uint32_t>(count));
  }
  if (node == 0 && p.arrivals.num_chunks > 0) {
    device::ResetArrivals(p.arrivals);
    device::ResetDepartures(p.departures);
  }
}

// Returns a word of the record of `token` for `node`. `choices`: which of the token's choices are
// of that node, as bits.
__device__ uint32_t RecordWord(const PackParams& p, int token, int node, uint32_t choices, int w) {
  const RecordShape shape = p.shape.record;
  if (w >= 2 * shape.topk) {
    return p.x_scales[static_cast<size_t>(token) * shape.scale_words + (w - 2 * shape.topk)];
  }
  const bool is_id = w < shape.topk;
  const int n = is_id ? w : w - shape.topk;
  const int chosen = __popc(choices);
  if (n >= chosen) return is_id ? ~uint32_t{0} : 0;
  const size_t choice = static_cast<size_t>(token) * p.shape.topk + device::NthBit(choices, n);
  if (!is_id) return p.topk_weights == nullptr ? kOne : p.topk_weights[choice];
  const ExpertMap& experts = p.shape.experts;
  return static_cast<uint32_t>(experts.LocalExpert(p.topk_idx[choice], node));
}

// Stores the record of `token` for `node`; `id` is that of choice Lane(), or -1. Called by all
// lanes of a wave.
__device__ void StoreRecord(const PackParams& p, int token, int node, int32_t id,
                            uint32_t* record) {
  const ExpertMap& experts = p.shape.experts;
  const auto choices =
      static_cast<uint32_t>(device::Ballot(experts.IsExpert(id) && experts.RankOf(id) == node));
  for (int w = Lane(); w < p.shape.record.words(); w += device::kWaveSize) {
    record[w] = RecordWord(p, token, node, choices, w);
  }
}

// Marks the unused rows of each block. Called by all lanes of all waves.
__device__ void FillBlocks(const PackParams& p, int wave, int waves) {
  const int words = p.shape.record.words();
  for (int node = 0; node < p.shape.num_nodes; ++node) {
    const int block = node * p.shape.max_tokens;
    uint32_t* const records = node == p.shape.node
                                  ? p.batch.records
                                  : p.sent.records + static_cast<size_t>(block) * words;
    for (int row = p.counts[node] + wave; row < p.shape.max_tokens; row += waves) {
      uint32_t* const record = records + static_cast<size_t>(row) * words;
      for (int w = Lane(); w < words; w += device::kWaveSize) {
        record[w] = w < p.shape.record.topk ? ~uint32_t{0} : 0;
      }
    }
  }
}

// A wave takes a token at a time.
__global__ void __launch_bounds__(1024) Pack(const PackParams p) {
  const int waves_per_block = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int wave = static_cast<int>(blockIdx.x) * waves_per_block + device::Wave();
  const int waves = static_cast<int>(gridDim.x) * waves_per_block;
  const int max_tokens = p.shape.max_tokens;
  for (int token = wave; token < p.num_tokens; token += waves) {
    const bool has_node = Lane() < p.shape.num_nodes;
    const int slot = has_node ? p.slots[static_cast<size_t>(Lane()) * max_tokens + token] : -1;
    const auto nodes = static_cast<uint32_t>(device::Ballot(slot >= 0));
    const int copies = __popc(nodes);
    const auto row_of = [&](int i) {
      const int node = device::NthBit(nodes, i);
      const int first = node == p.shape.node ? 0 : node * max_tokens;
      return first + device::Shuffle(slot, node);
    };
    device::WaveCopyRowToMany<device::kCopyUnroll>(
        device::RowOf(p.x, token, p.row_vecs), {0, p.row_vecs}, copies, [&](int i) {
          const bool own = device::NthBit(nodes, i) == p.shape.node;
          return device::RowOf(own ? p.batch.rows : p.sent.rows, row_of(i), p.row_vecs);
        });
    const int32_t id =
        Lane() < p.shape.topk ? p.topk_idx[static_cast<size_t>(token) * p.shape.topk + Lane()] : -1;
    for (int i = 0; i < copies; ++i) {
      const int node = device::NthBit(nodes, i);
      uint32_t* const records = node == p.shape.node ? p.batch.records : p.sent.records;
      StoreRecord(p, token, node, id,
                  records + static_cast<size_t>(row_of(i)) * p.shape.record.words());
    }
  }
  if (p.fill) FillBlocks(p, wave, waves);
}

// Returns id `n` of a record, or -1 if there cannot be such a record.
__device__ int32_t CheckedId(const SplitParams& p, size_t row, int n) {
  const auto* ids =
      reinterpret_cast<const int32_t*>(p.records + row * static_cast<size_t>(p.record.words()));
  const int32_t id = ids[n];
  if (id == -1 || (id >= 0 && id < p.num_experts && !device::ChosenBefore(ids, n, id))) return id;
  const auto index =
      static_cast<uint32_t>(row) * static_cast<uint32_t>(p.record.topk) + static_cast<uint32_t>(n);
  device::Fail(p.failure, device::FailureKind::kInput,
               {static_cast<uint32_t>(Site::kRecord), -1, index},
               static_cast<uint64_t>(p.num_experts), static_cast<uint64_t>(int64_t{id}), 0);
  return -1;
}

// A thread takes a word at a time. If the Run has failed, no token has a choice: what earlier calls
// have left could be anything.
__global__ void __launch_bounds__(1024) Split(const SplitParams p) {
  const bool failed = device::HasFailed(p.failure);
  const int topk = p.record.topk;
  const auto words = static_cast<size_t>(p.record.words());
  const auto step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const size_t all = static_cast<size_t>(p.num_rows) * words;
  const auto thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0 && thread < p.arrivals.num_chunks) {
    device::SetEnd(p.arrivals, thread, p.ends[thread]);
    if (thread == 0) *p.begin = p.own_rows;
  }
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
    const size_t row = i / words;
    const auto w = static_cast<int>(i % words);
    if (failed && w >= topk) continue;
    if (w < topk) {
      p.topk_idx[row * topk + w] = failed ? -1 : CheckedId(p, row, w);
      continue;
    }
    const uint32_t word = p.records[i];
    if (w < 2 * topk) {
      p.topk_weights[row * topk + (w - topk)] = word;
    } else {
      p.scales[row * p.record.scale_words + (w - 2 * topk)] = word;
    }
  }
}

// One thread.
__global__ void Mark(const MarkParams p) {
  if (!device::HasFailed(p.failure)) device::MarkArrived(p.arrivals, p.chunk);
}

// One wave.
__global__ void AwaitRows(const AwaitRowsParams p) {
  if (device::HasFailed(p.failure)) return;
  const auto site = static_cast<uint32_t>(Site::kReturn);
  device::AwaitStored(p.failure, p.departures, p.chunk, p.vecs, site);
}

// A wave takes a token at a time.
template <typename Codec>
__global__ void __launch_bounds__(1024) AddNodes(const AddNodesParams p) {
  if (device::HasFailed(p.failure)) return;
  constexpr int kVecs = 2;
  constexpr int kRows = 2;
  const int waves_per_block = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int wave = static_cast<int>(blockIdx.x) * waves_per_block + device::Wave();
  const int waves = static_cast<int>(gridDim.x) * waves_per_block;
  const int max_tokens = p.shape.max_tokens;
  for (int token = wave; token < p.num_tokens; token += waves) {
    const bool has_node = Lane() < p.shape.num_nodes;
    const int slot = has_node ? p.slots[static_cast<size_t>(Lane()) * max_tokens + token] : -1;
    const device::WeightedRows rows = {
        p.shape.num_nodes, static_cast<uint32_t>(device::Ballot(slot >= 0)),
        [&](int node) {
          const int from = device::Shuffle(slot, node);
          return node == p.shape.node
                     ? device::RowOf(p.own, from, p.row_vecs)
                     : device::RowOf(p.returned, node * max_tokens + from, p.row_vecs);
        },
        [](int) { return 1.0F; }};
    device::SumRows<Codec, kVecs, kRows>(device::RowOf(p.y, token, p.row_vecs), rows,
                                         static_cast<const Vec16*>(p.bias),
                                         {0, p.row_vecs, device::kWaveSize});
  }
}

using AddKernel = void (*)(AddNodesParams);

AddKernel PickAddNodes(bool fp16) {
  return fp16 ? AddNodes<device::Fp16Codec> : AddNodes<device::Bf16Codec>;
}

template <typename Params>
hipError_t Launch(void (*kernel)(Params), Params params, const LaunchShape& shape,
                  hipStream_t stream) {
  void* args[] = {&params};
  return hipLaunchKernel(kernel, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace

hipError_t LoadKernels(bool fp16) {
  return device::LoadKernels(Plan, Pack, Split, Mark, AwaitRows, PickAddNodes(fp16));
}

hipError_t LaunchPlan(const PlanParams& params, int wave_size, hipStream_t stream) {
  const int waves = std::max((params.num_tokens + wave_size - 1) / wave_size, 1);
  return Launch(
      Plan, params,
      {.blocks = params.shape.num_nodes, .threads = std::min(waves * wave_size, kMaxPlanThreads)},
      stream);
}

hipError_t LaunchPack(const PackParams& params, const LaunchShape& shape, hipStream_t stream) {
  return Launch(Pack, params, shape, stream);
}

hipError_t LaunchSplit(const SplitParams& params, const LaunchShape& shape, hipStream_t stream) {
  return Launch(Split, params, shape, stream);
}

hipError_t LaunchMark(const MarkParams& params, hipStream_t stream) {
  return Launch(Mark, params, {.blocks = 1, .threads = 1}, stream);
}

hipError_t LaunchAwaitRows(const AwaitRowsParams& params, int wave_size, hipStream_t stream) {
  return Launch(AwaitRows, params, {.blocks = 1, .threads = wave_size}, stream);
}

hipError_t LaunchAddNodes(const AddNodesParams& params, bool fp16, const LaunchShape& shape,
                          hipStream_t stream) {
  return Launch(PickAddNodes(fp16), params, shape, stream);
}

}  // namespace octet::hierarchical
