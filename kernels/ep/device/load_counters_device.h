// The device side of LoadCounters.
#ifndef OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/load_counters.h"

namespace octet::device {

inline constexpr int kLoadTagShift = 32;

// Brings near what CountLoads() will add to, if there are counters: a call that ends soon after it
// would otherwise wait for memory. Called early in a call, by the threads that will count, which
// need not wait for it.
__device__ __forceinline__ void PrefetchLoads(const LoadCounters& counters, int first, int step) {
  if (counters.totals == nullptr) return;
  for (int c = first; c < counters.num_counters; c += step) Prefetch(counters.totals + c);
}

// Counts the rows of call `epoch`, if there are counters: rows_of(e) for each local expert. Called
// once for a call, by thread `first` of `step` in one of its blocks. Reads nothing that a call has
// written and waits for nothing, so that it costs a call its stores and no more.
template <typename RowsOf>
__device__ __forceinline__ void CountLoads(const LoadCounters& counters, uint64_t epoch, int first,
                                           int step, RowsOf rows_of) {
  if (counters.totals == nullptr) return;
  uint64_t* const of_call = counters.calls + (epoch & static_cast<uint64_t>(counters.slots - 1)) *
                                                 static_cast<uint64_t>(counters.num_counters);
  for (int c = first; c < counters.num_counters; c += step) {
    const int local = counters.locals == nullptr ? c : counters.locals[c];
    const uint64_t rows = local < 0 ? 0 : static_cast<uint32_t>(rows_of(local));
    // Whoever sees an entry of a later call sees this one, too: kernels of a stream follow one
    // another.
    StoreRelaxed<Scope::kDevice>(of_call + c, epoch << kLoadTagShift | rows);
    if (rows != 0) FetchAddRelaxed<Scope::kDevice>(counters.totals + c, rows);
  }
}

// Sets `rows` to the sum of a counter's window, as it is after the last call that has an entry;
// returns false if calls have replaced what belongs to it meanwhile.
__device__ inline bool ReadWindow(const LoadCounters& counters, int c, uint64_t* rows) {
  const auto entry_of = [&](int slot) {
    return LoadRelaxed<Scope::kDevice>(counters.calls +
                                       static_cast<int64_t>(slot) * counters.num_counters + c);
  };
  *rows = 0;
  uint32_t last = 0;
  bool any = false;
  for (int slot = 0; slot < counters.slots; ++slot) {
    const uint64_t entry = entry_of(slot);
    if (entry == 0) continue;
    const auto tag = static_cast<uint32_t>(entry >> kLoadTagShift);
    if (!any || static_cast<int32_t>(tag - last) > 0) last = tag;
    any = true;
  }
  // All calls up to `last` have entries, but those that have failed.
  FenceAcquire<Scope::kDevice>();
  for (int slot = 0; slot < counters.slots && any; ++slot) {
    const uint64_t entry = entry_of(slot);
    if (entry == 0) continue;
    const auto age = static_cast<int32_t>(last - static_cast<uint32_t>(entry >> kLoadTagShift));
    if (age < 0 && age + counters.slots < counters.window) return false;
    if (age >= 0 && age < counters.window) *rows += static_cast<uint32_t>(entry);
  }
  return true;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_DEVICE_H_
