// Moves rows through a library's all-to-all, which takes them in the order of destinations:
//
//   x [T][H] --sort, gather--> rows by expert ==all-to-all==> rows by (source, expert) --scatter->
//   x y [T][H] <-----sum-------- rows by expert <==all-to-all== rows by (source, expert)
//   <--return-- out
#include "tools/contenders/sorted_rows.h"

#include <type_traits>

#include "device_ops.h"
#include "device_sort.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/wave_scan.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::Vec16;

// Some platforms ignore launch bounds.
[[maybe_unused]] constexpr int kMaxThreads = 512;

// The pieces of a token, each summed by its own wave, and the rows that a lane loads at once.
constexpr int kSumParts = 4;
constexpr int kRowsInFlight = 4;

// Dropped choices come last: they have the key E.
int KeyBits(int num_experts) {
  int bits = 1;
  while ((num_experts >> bits) != 0) ++bits;
  return bits;
}

__device__ Vec16* RowOf(void* rows, int64_t row, int row_vecs) {
  return static_cast<Vec16*>(rows) + row * row_vecs;
}
__device__ const Vec16* RowOf(const void* rows, int64_t row, int row_vecs) {
  return static_cast<const Vec16*>(rows) + row * row_vecs;
}

// Returns the index of the first of the ascending `values` [n] that is above `value`.
template <typename T>
__device__ int UpperBound(const T* values, int n, T value) {
  int low = 0;
  int high = n;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (values[middle] > value) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kMaxThreads)
    MakeKeys(const int32_t* topk_idx, int n, int num_experts, uint32_t* keys, int32_t* flats) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    keys[i] = static_cast<uint32_t>(topk_idx[i] < 0 ? num_experts : topk_idx[i]);
    flats[i] = i;
  }
}

__global__ void __launch_bounds__(kMaxThreads)
    CountExperts(const uint32_t* sorted_keys, int n, int num_experts, int32_t* counts) {
  for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < num_experts;
       e += gridDim.x * blockDim.x) {
    const auto key = static_cast<uint32_t>(e);
    const int begin = e == 0 ? 0 : UpperBound(sorted_keys, n, key - 1);
    counts[e] = UpperBound(sorted_keys, n, key) - begin;
  }
}

__global__ void __launch_bounds__(kMaxThreads)
    Gather(const SortedRowsShape p, const SortedSide side, const void* x, int n) {
  const int waves = blockDim.x / device::kWaveSize;
  for (int i = blockIdx.x * waves + device::Wave(); i < n; i += gridDim.x * waves) {
    const bool sent = side.sorted_keys[i] < static_cast<uint32_t>(p.num_experts);
    const int flat = side.sorted_flats[i];
    if (device::Lane() == 0) side.position[flat] = sent ? i : -1;
    if (!sent) continue;
    device::WaveCopyRow(RowOf(side.rows, i, p.row_vecs), RowOf(x, flat / p.topk, p.row_vecs),
                        {0, p.row_vecs});
  }
}

// Launched with one wave.
__global__ void Plan(const SortedRowsShape p, const ArrivedSide side) {
  __shared__ int32_t first[kMaxSortedExperts];
  __shared__ int32_t offset[kMaxSortedExperts];  // [L][R]
  for (int i = device::Lane(); i < p.num_experts; i += device::kWaveSize) {
    const int source = i / p.num_local_experts;
    const int local = i - source * p.num_local_experts;
    first[i] = side.counts[i];
    offset[local * p.num_ranks + source] = side.counts[i];
  }
  device::SyncWave();
  const int total = device::WaveExclusiveScan(first, p.num_experts);
  device::WaveExclusiveScan(offset, p.num_experts);
  for (int i = device::Lane(); i < p.num_experts; i += device::kWaveSize) {
    const int source = i / p.num_local_experts;
    const int local = i - source * p.num_local_experts;
    side.first[i] = first[i];
    side.offset[i] = offset[local * p.num_ranks + source];
  }
  for (int local = device::Lane(); local < p.num_local_experts; local += device::kWaveSize) {
    const int begin = offset[local * p.num_ranks];
    const bool last = local + 1 == p.num_local_experts;
    side.expert_offsets[local] = begin;
    side.expert_counts[local] = (last ? total : offset[(local + 1) * p.num_ranks]) - begin;
  }
  if (device::Lane() == 0) {
    side.first[p.num_experts] = total;
    side.expert_offsets[p.num_local_experts] = total;
  }
}

// The destination of an arrived row.
struct Destination {
  int row;
  int source;
  int local_expert;
};
__device__ Destination DestinationOf(const SortedRowsShape& p, const ArrivedSide& side, int i) {
  const int segment = UpperBound(side.first, p.num_experts, i) - 1;
  const int source = segment / p.num_local_experts;
  return {side.offset[segment] + i - side.first[segment], source,
          segment - source * p.num_local_experts};
}

__global__ void __launch_bounds__(kMaxThreads)
    ScatterRows(const SortedRowsShape p, const ArrivedSide side) {
  const int waves = blockDim.x / device::kWaveSize;
  const int total = side.first[p.num_experts];
  for (int i = blockIdx.x * waves + device::Wave(); i < total; i += gridDim.x * waves) {
    const Destination destination = DestinationOf(p, side, i);
    if (device::Lane() == 0) {
      const int flat = side.flats[i];
      const int token = flat / p.topk;
      side.sources[destination.row] = {destination.source, token, flat - token * p.topk,
                                       destination.local_expert};
    }
    device::WaveCopyRow(RowOf(side.x, destination.row, p.row_vecs), RowOf(side.rows, i, p.row_vecs),
                        {0, p.row_vecs});
  }
}

template <typename Codec>
__global__ void __launch_bounds__(kMaxThreads)
    ReturnRows(const SortedRowsShape p, const ArrivedSide side, const void* expert_out,
               const float* expert_scale) {
  const int waves = blockDim.x / device::kWaveSize;
  const int total = side.first[p.num_experts];
  for (int i = blockIdx.x * waves + device::Wave(); i < total; i += gridDim.x * waves) {
    const Destination destination = DestinationOf(p, side, i);
    const Vec16* from = RowOf(expert_out, destination.row, p.row_vecs);
    Vec16* to = RowOf(side.rows, i, p.row_vecs);
    if (expert_scale == nullptr) {
      device::WaveCopyRow(to, from, {0, p.row_vecs});
    } else {
      const float scale = expert_scale[destination.local_expert];
      device::WaveTransformRow(to, from, {0, p.row_vecs},
                               [scale](const Vec16& v) { return device::Scale<Codec>(v, scale); });
    }
  }
}

template <typename Codec>
__global__ void __launch_bounds__(kMaxThreads)
    SumRows(const SortedRowsShape p, const SortedSide side, const float* topk_weights,
            int num_tokens, void* y) {
  const int waves = blockDim.x / device::kWaveSize;
  for (int item = blockIdx.x * waves + device::Wave(); item < num_tokens * kSumParts;
       item += gridDim.x * waves) {
    const int token = item / kSumParts;
    const device::RowPart part = device::PartOfRow(item - token * kSumParts, kSumParts, p.row_vecs);
    const int32_t* position = side.position + static_cast<int64_t>(token) * p.topk;
    const float* weights = topk_weights + static_cast<int64_t>(token) * p.topk;
    for (int i = part.begin + device::Lane(); i < part.end; i += device::kWaveSize) {
      float sum[device::kElementsPerVec] = {};
      for (int k = 0; k < p.topk; k += kRowsInFlight) {
        Vec16 v[kRowsInFlight];
#pragma unroll
        for (int u = 0; u < kRowsInFlight; ++u) {
          if (k + u < p.topk && position[k + u] >= 0) {
            v[u] = device::LoadStream(RowOf(side.rows, position[k + u], p.row_vecs) + i);
          }
        }
#pragma unroll
        for (int u = 0; u < kRowsInFlight; ++u) {
          if (k + u < p.topk && position[k + u] >= 0) {
            device::Accumulate<Codec>(sum, v[u], weights[k + u]);
          }
        }
      }
      device::StoreStream(RowOf(y, token, p.row_vecs) + i, device::Round<Codec>(sum));
    }
  }
}

auto* PickReturnRows(bool fp16) {
  return fp16 ? ReturnRows<device::Fp16Codec> : ReturnRows<device::Bf16Codec>;
}
auto* PickSumRows(bool fp16) {
  return fp16 ? SumRows<device::Fp16Codec> : SumRows<device::Bf16Codec>;
}

template <typename... Parameters>
hipError_t Launch(void (*kernel)(Parameters...), const StreamLaunch& launch,
                  std::type_identity_t<Parameters>... arguments) {
  const LaunchShape& shape = launch.shape;
  void* args[] = {&arguments...};
  return hipLaunchKernel(kernel, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), launch.stream);
}

}  // namespace

hipError_t LoadSortedRows(bool fp16) {
  return device::LoadKernels(MakeKeys, CountExperts, Gather, Plan, ScatterRows,
                             PickReturnRows(fp16), PickSumRows(fp16));
}

hipError_t SortFlatsBytes(int n, int num_experts, size_t* bytes) {
  return device::SortPairs(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, n,
                           KeyBits(num_experts), nullptr);
}

hipError_t LaunchSortFlats(const SortedRowsShape& rows, const SortedSide& side,
                           const int32_t* topk_idx, int n, const StreamLaunch& launch) {
  hipError_t error = Launch(MakeKeys, launch, topk_idx, n, rows.num_experts, side.keys, side.flats);
  if (error != hipSuccess) return error;
  if (n > 0) {
    size_t temp_bytes = side.temp_bytes;
    error = device::SortPairs(side.temp, &temp_bytes, side.keys, side.sorted_keys, side.flats,
                              side.sorted_flats, n, KeyBits(rows.num_experts), launch.stream);
    if (error != hipSuccess) return error;
  }
  return Launch(CountExperts, launch, side.sorted_keys, n, rows.num_experts, side.counts);
}

hipError_t LaunchGather(const SortedRowsShape& rows, const SortedSide& side, const void* x, int n,
                        const StreamLaunch& launch) {
  return Launch(Gather, launch, rows, side, x, n);
}

hipError_t LaunchPlan(const SortedRowsShape& rows, const ArrivedSide& side, int wave_size,
                      hipStream_t stream) {
  return Launch(Plan, {{.blocks = 1, .threads = wave_size}, stream}, rows, side);
}

hipError_t LaunchScatter(const SortedRowsShape& rows, const ArrivedSide& side,
                         const StreamLaunch& launch) {
  return Launch(ScatterRows, launch, rows, side);
}

hipError_t LaunchReturn(const SortedRowsShape& rows, const ArrivedSide& side,
                        const void* expert_out, const float* expert_scale,
                        const StreamLaunch& launch) {
  return Launch(PickReturnRows(rows.fp16), launch, rows, side, expert_out, expert_scale);
}

hipError_t LaunchSum(const SortedRowsShape& rows, const SortedSide& side, const TokenSums& sums,
                     const StreamLaunch& launch) {
  return Launch(PickSumRows(rows.fp16), launch, rows, side, sums.topk_weights, sums.num_tokens,
                sums.y);
}

}  // namespace octet
