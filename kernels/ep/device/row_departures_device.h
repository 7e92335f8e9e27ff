// How a combine tells which rows of RowDepartures are complete, and the wait for them.
#ifndef OCTET_KERNELS_EP_DEVICE_ROW_DEPARTURES_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_ROW_DEPARTURES_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/row_departures.h"
#include "kernels/ep/device/row_sum.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Returns the i-th of `n` things, which are in the order of rows, in the order in which the rows
// are needed.
__device__ __forceinline__ int InOrderOfDeparture(const RowDepartures& departures, int i, int n) {
  return departures.num_chunks == 0 ? i : n - 1 - i;
}

// Says that the calling wave has stored `columns` of a row. Called by all lanes.
__device__ __forceinline__ void MarkStored(const RowDepartures& departures, int row,
                                           const Columns& columns) {
  if (departures.num_chunks == 0 || row < *departures.begin) return;
  const bool before = Lane() < departures.num_chunks && departures.ends[Lane()] <= row;
  const int chunk = __popcll(Ballot(before));
  SyncWave();
  const int vecs = VecsOf(columns);
  if (Lane() != 0 || vecs == 0) return;
  // At the scope of the device, which costs less; who waits releases them to the system.
  FenceRelease<Scope::kDevice>();
  FetchAddRelaxed<Scope::kSystem>(departures.stored + chunk, static_cast<uint64_t>(vecs));
}

// Called by one thread while no combine runs.
__device__ __forceinline__ void ResetDepartures(const RowDepartures& departures) {
  for (int chunk = 0; chunk < departures.num_chunks; ++chunk) {
    StoreRelaxed<Scope::kSystem>(departures.stored + chunk, uint64_t{0});
  }
}

// Waits until all `vecs` vectors of a chunk are stored, for work that follows on the stream, and
// sets their number to 0, for the next combine. Called by all lanes of a wave.
__device__ inline void AwaitStored(const FailurePort& port, const RowDepartures& departures,
                                   int chunk, uint64_t vecs, uint32_t site) {
  uint64_t* const stored = departures.stored + chunk;
  if (!WaveWaitEpoch(port, stored, vecs, {site, -1, static_cast<uint32_t>(chunk)})) return;
  if (Lane() == 0) StoreRelease<Scope::kSystem>(stored, uint64_t{0});
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_ROW_DEPARTURES_DEVICE_H_
