// The device side of LoadCounters.
#ifndef OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/load_counters.h"

namespace octet::device {

// Counts the rows of call `epoch`, if there are counters: rows_of(e) for each local expert. Called by thread `first` of
// `step`, in one block of the call. If it is called again for the same call, the last rows count.
// Nothing waits for the stores to the host.
template <typename RowsOf>
__device__ __forceinline__ void CountLoads(const LoadCounters* counters, uint64_t epoch, int first,
                                           int step, RowsOf rows_of) {
  if (counters == nullptr) return;
  const auto column = static_cast<uint64_t>(counters->num_experts);
  for (int e = first; e < counters->num_experts; e += step) {
    const auto rows = static_cast<uint64_t>(rows_of(e));
    uint64_t* const mine = counters->columns + e;
    // A ring of its own instead of the epoch modulo slots: AMD GPUs have no division.
    const bool again = mine[LoadCounters::kLastEpoch * column] == epoch;
    uint64_t slot = mine[LoadCounters::kLastSlot * column];
    if (!again) slot = slot + 1 < static_cast<uint64_t>(counters->slots) ? slot + 1 : 0;
    uint64_t* const entry = mine + (LoadCounters::kCalls + slot) * column;
    const uint64_t before = *entry;
    const uint64_t total = mine[LoadCounters::kTotal * column] + rows - (again ? before : 0);
    const uint64_t window = mine[LoadCounters::kWindow * column] + rows - before;
    mine[LoadCounters::kTotal * column] = total;
    mine[LoadCounters::kWindow * column] = window;
    mine[LoadCounters::kLastEpoch * column] = epoch;
    mine[LoadCounters::kLastSlot * column] = slot;
    *entry = rows;
    StoreRelaxed<Scope::kSystem>(counters->published + e, total);
    StoreRelaxed<Scope::kSystem>(counters->published + column + e, window);
  }
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_
