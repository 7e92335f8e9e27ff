// The seam through which faults get into the kernels of calls over several nodes, as seam.h is that
// of the strategies: the kernels' file is compiled with `-include
// tests/faults/hierarchical_seam.h`, the real headers come first, then their names are replaced.
// With HierarchicalFault::kNone these are what they replace.
#ifndef OCTET_TESTS_FAULTS_HIERARCHICAL_SEAM_H_
#define OCTET_TESTS_FAULTS_HIERARCHICAL_SEAM_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/row_arrivals_device.h"
#include "kernels/ep/device/row_departures_device.h"
#include "kernels/ep/device/row_sum.h"
#include "kernels/nodes/kernels.h"
#include "tests/faults/hierarchical_fault.h"

namespace octet {

inline bool Planted(faults::HierarchicalFault fault) {
  return faults::planted_hierarchical == fault;
}

class SeamExpertMap {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): takes the place of what it is made from
  __device__ SeamExpertMap(const ExpertMap& map) : map_(map) {}

  __device__ bool IsExpert(int32_t id) const { return map_.IsExpert(id); }
  __device__ int RankOf(int expert) const { return map_.RankOf(expert); }
  __device__ int LocalExpert(int expert, int node) const {
    if (Planted(faults::HierarchicalFault::kIdsNotRenumbered)) return expert;
    return map_.LocalExpert(expert, node);
  }

 private:
  ExpertMap map_;
};

namespace device {

__device__ inline void SeamResetArrivals(const RowArrivals& arrivals) {
  ResetArrivals(arrivals);
  if (Planted(faults::HierarchicalFault::kChunksTooEarly)) MarkArrived(arrivals, kMaxRowChunks);
}

__device__ inline void SeamSetEnd(const RowArrivals& arrivals, int chunk, int32_t end) {
  SetEnd(arrivals, chunk, Planted(faults::HierarchicalFault::kChunkTooLong) ? end + 1 : end);
}

__device__ inline void SeamAwaitStored(const FailurePort& port, const RowDepartures& departures,
                                       int chunk, uint64_t vecs, uint32_t site) {
  if (Planted(faults::HierarchicalFault::kRowsLeaveTooEarly)) return;
  AwaitStored(port, departures, chunk, vecs, site);
}

template <typename Codec, int kVecs, int kRows, typename Rows>
__device__ inline void SeamSumRows(Vec16* y, const Rows& rows, const Vec16* bias,
                                   const Columns& columns) {
  const int last = rows.n - 1;
  if (Planted(faults::HierarchicalFault::kNodesDescending)) {
    uint32_t present = 0;
    for (int k = 0; k < rows.n; ++k) present |= ((rows.present >> k) & 1) << (last - k);
    const WeightedRows descending = {rows.n, present, [&](int k) { return rows.row(last - k); },
                                     [&](int k) { return rows.weight(last - k); }};
    SumRows<Codec, kVecs, kRows>(y, descending, bias, columns);
  } else if (Planted(faults::HierarchicalFault::kRowOfFirstNode)) {
    const int first = __ffs(static_cast<int>(rows.present)) - 1;
    const WeightedRows one = {rows.n, rows.present, [&](int) { return rows.row(first); },
                              rows.weight};
    SumRows<Codec, kVecs, kRows>(y, one, bias, columns);
  } else {
    SumRows<Codec, kVecs, kRows>(y, rows, bias, columns);
  }
}

}  // namespace device
}  // namespace octet

#define ExpertMap SeamExpertMap
#define ResetArrivals SeamResetArrivals
#define SetEnd SeamSetEnd
#define AwaitStored SeamAwaitStored
#define SumRows SeamSumRows

#endif  // OCTET_TESTS_FAULTS_HIERARCHICAL_SEAM_H_
