// The waits for rows of RowArrivals, and how they are told that chunks have come.
#ifndef OCTET_KERNELS_EP_DEVICE_ROW_ARRIVALS_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_ROW_ARRIVALS_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/row_arrivals.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Called by one thread, before the first chunk has come.
__device__ __forceinline__ void ResetArrivals(const RowArrivals& arrivals) {
  StoreRelaxed<Scope::kSystem>(arrivals.arrived, uint64_t{0});
}

// Called by one thread for each chunk, before the dispatch.
__device__ __forceinline__ void SetEnd(const RowArrivals& arrivals, int chunk, int32_t end) {
  arrivals.ends[chunk] = end;
}

// Says that chunks 0 .. `chunk` have come, with everything that came before on the stream. Called
// by one thread.
__device__ __forceinline__ void MarkArrived(const RowArrivals& arrivals, int chunk) {
  StoreRelease<Scope::kSystem>(arrivals.arrived, static_cast<uint64_t>(chunk) + 1);
}

// Waits until `row` has come. Returns false if it does not come in time. Called by all lanes of a
// wave. `*waited` is set to whether the row may have come while the kernel ran.
__device__ inline bool WaveAwaitRow(const RowArrivals& arrivals, int row, bool* waited = nullptr) {
  if (waited != nullptr) *waited = false;
  if (arrivals.num_chunks == 0) return true;
  const bool before = Lane() < arrivals.num_chunks && arrivals.ends[Lane()] <= row;
  const int chunk = __popcll(Ballot(before));
  if (chunk == 0) return true;
  if (waited != nullptr) *waited = true;
  return WaveWaitEpoch(arrivals.port, arrivals.arrived, static_cast<uint64_t>(chunk) + 1,
                       {arrivals.site, -1, static_cast<uint32_t>(chunk)});
}

// The same for all threads of a block, which all call it.
__device__ inline bool BlockAwaitRow(const RowArrivals& arrivals, int row) {
  if (arrivals.num_chunks == 0) return true;
  __shared__ int came;
  __syncthreads();  // all have read the answer about an earlier row
  if (Wave() == 0) {
    const bool mine = WaveAwaitRow(arrivals, row);
    if (Lane() == 0) came = mine ? 1 : 0;
  }
  __syncthreads();
  return came != 0;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_ROW_ARRIVALS_DEVICE_H_
