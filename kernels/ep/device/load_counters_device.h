// The device side of LoadCounters.
#ifndef OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/load_counters.h"

namespace octet::device {

// The rows of expert `e` in the call `epoch`.
__device__ __forceinline__ uint32_t* LoadsOfCall(const LoadCounters& counters, uint64_t epoch,
                                                 int e) {
  const uint64_t slot = epoch & static_cast<uint64_t>(counters.slots - 1);
  return counters.calls + slot * static_cast<uint64_t>(counters.num_experts) + e;
}

// Brings near what CountLoads() will read, if there are counters. Called early in a call, by the
// threads that will count, which need not wait for it.
__device__ __forceinline__ void PrefetchLoads(const LoadCounters& counters, uint64_t epoch,
                                              int first, int step) {
  if (counters.totals == nullptr) return;
  for (int e = first; e < counters.num_experts; e += step) {
    Prefetch(counters.totals + e);
    Prefetch(counters.windows + e);
    Prefetch(LoadsOfCall(counters, epoch - static_cast<uint64_t>(counters.window), e));
  }
}

// Makes the calls between the last one that counted and `epoch` calls of no rows: they have failed.
__device__ inline void SkipCalls(const LoadCounters& counters, LoadCounters::Window& window,
                                 uint64_t epoch, int e) {
  const uint64_t first = window.last_epoch + 1;
  const uint64_t end = first + static_cast<uint64_t>(counters.slots);  // then all are zeros
  for (uint64_t skipped = first; skipped < epoch && skipped < end; ++skipped) {
    window.rows -= *LoadsOfCall(counters, skipped - static_cast<uint64_t>(counters.window), e);
    *LoadsOfCall(counters, skipped, e) = 0;
  }
}

// Counts the rows of call `epoch`, if there are counters: rows_of(e) for each local expert. Called
// by thread `first` of `step`, in one block of the call. If it is called again for the same call,
// the last rows count. Nothing waits for the stores to the host.
template <typename RowsOf>
__device__ __forceinline__ void CountLoads(const LoadCounters& counters, uint64_t epoch, int first,
                                           int step, RowsOf rows_of) {
  if (counters.totals == nullptr) return;
  for (int e = first; e < counters.num_experts; e += step) {
    const auto rows = static_cast<uint32_t>(rows_of(e));
    // None of these loads waits for another one.
    uint64_t total = counters.totals[e];
    LoadCounters::Window window = counters.windows[e];
    uint32_t leaving = *LoadsOfCall(counters, epoch - static_cast<uint64_t>(counters.window), e);
    uint32_t* const of_call = LoadsOfCall(counters, epoch, e);
    if (window.last_epoch == epoch) {
      leaving = *of_call;
      total -= leaving;
    } else if (window.last_epoch != 0 && window.last_epoch + 1 != epoch) {
      SkipCalls(counters, window, epoch, e);
      leaving = *LoadsOfCall(counters, epoch - static_cast<uint64_t>(counters.window), e);
    }
    total += rows;
    window = {window.rows + rows - leaving, epoch};
    counters.totals[e] = total;
    counters.windows[e] = window;
    *of_call = rows;
    StoreRelaxed<Scope::kSystem>(counters.published + e, total);
    StoreRelaxed<Scope::kSystem>(counters.published + counters.num_experts + e, window.rows);
  }
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_
