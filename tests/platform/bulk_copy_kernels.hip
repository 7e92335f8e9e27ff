#include "tests/platform/bulk_copy_kernels.h"

#include "device_ops.h"
#include "runtime/device/bulk_ring.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::BulkRing;
using device::Scope;
using device::Vec16;

__device__ char* RowOf(uint32_t* rows, const BulkCopyParams& p, int row) {
  return reinterpret_cast<char*>(rows) + static_cast<size_t>(row) * p.row_bytes;
}

template <int slots>
__global__ void CopyRows(const BulkCopyParams p, int waves) {
  HIP_DYNAMIC_SHARED(Vec16, shared)
  const int first = blockIdx.x * waves + device::Wave();
  const int step = gridDim.x * waves;
  const int mine = first < p.rows ? (p.rows - first + step - 1) / step : 0;
  BulkRing<slots> ring(shared, device::Wave(), waves, p.row_bytes);
  const auto load = [&](int i) {
    ring.Load(static_cast<uint32_t>(i), RowOf(const_cast<uint32_t*>(p.from), p, first + i * step),
              p.row_bytes);
  };
  if (mine > 0) load(0);
  for (int i = 0; i < mine; ++i) {
    if (i + 1 < mine) load(i + 1);
    const void* row = ring.Await(static_cast<uint32_t>(i));
    device::BulkStore(RowOf(p.to, p, first + i * step), row, p.row_bytes);
    device::BulkStore(RowOf(p.also, p, first + i * step), row, p.row_bytes);
    device::BulkCommit();
  }
  device::BulkWaitWritten<0>();
  for (int i = 0; i < mine; ++i) {
    if (device::Lane() == 0) device::StoreRelease<Scope::kSystem>(p.done + first + i * step, 1U);
  }
}

__global__ void CopyOwn(const BulkCopyParams p, bool through_shared, uint32_t* scratch) {
  HIP_DYNAMIC_SHARED(Vec16, shared)
  auto* const barrier = reinterpret_cast<device::BulkBarrier*>(shared);
  constexpr int kBarrierVecs = (sizeof(device::BulkBarrier) + sizeof(Vec16) - 1) / sizeof(Vec16);
  Vec16* const buffer = shared + kBarrierVecs;
  const int words = static_cast<int>(p.row_bytes / sizeof(uint32_t));
  device::BulkInit(barrier);
  for (int row = 0; row < p.rows; ++row) {
    auto* const own = through_shared ? reinterpret_cast<uint32_t*>(buffer) : scratch;
    for (int i = device::Lane(); i < words; i += device::kWaveSize) {
      own[i] = static_cast<uint32_t>(row) + 1;
    }
    if (through_shared) {
      device::BulkFenceShared();
    } else {
      device::SyncWave();
      device::BulkFenceGlobal();
      device::BulkLoad(buffer, scratch, p.row_bytes, barrier);
      device::BulkWaitLoad(barrier, static_cast<uint32_t>(row));
    }
    device::BulkStore(RowOf(p.to, p, row), buffer, p.row_bytes);
    device::BulkCommit();
    device::BulkWaitRead<0>();
  }
  device::BulkWaitWritten<0>();
}

template <int slots>
hipError_t Launch(const BulkCopyParams& params, int blocks, int waves, int wave_size,
                  hipStream_t stream) {
  BulkCopyParams p = params;
  const size_t shared_bytes = BulkRing<slots>::SharedBytes(waves, p.row_bytes);
  if (shared_bytes > device::kMaxBulkSharedBytes) return hipErrorInvalidValue;
  const hipError_t error = device::LoadKernelWithShared(CopyRows<slots>, shared_bytes);
  if (error != hipSuccess) return error;
  void* args[] = {&p, &waves};
  return hipLaunchKernel(CopyRows<slots>, dim3(static_cast<unsigned>(blocks)),
                         dim3(static_cast<unsigned>(waves * wave_size)), args,
                         static_cast<unsigned>(shared_bytes), stream);
}

}  // namespace

hipError_t LaunchBulkCopy(const BulkCopyParams& params, int slots, int blocks, int waves,
                          int wave_size, hipStream_t stream) {
  switch (slots) {
    case 2:
      return Launch<2>(params, blocks, waves, wave_size, stream);
    case 3:
      return Launch<3>(params, blocks, waves, wave_size, stream);
    default:
      return Launch<4>(params, blocks, waves, wave_size, stream);
  }
}

hipError_t LaunchBulkCopyOwn(const BulkCopyParams& params, bool through_shared, uint32_t* scratch,
                             int wave_size, hipStream_t stream) {
  BulkCopyParams p = params;
  void* args[] = {&p, &through_shared, &scratch};
  return hipLaunchKernel(
      CopyOwn, dim3(1), dim3(static_cast<unsigned>(wave_size)), args,
      static_cast<unsigned>(p.row_bytes + 2 * sizeof(device::BulkBarrier) + sizeof(Vec16)), stream);
}

}  // namespace octet
