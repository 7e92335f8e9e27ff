// The seam through which faults get into the kernels of grouped products, as seam.h is that of the
// strategies: the kernels' file is compiled with `-include tests/faults/gemm_seam.h`, the real
// headers come first, then their functions are replaced by name. With GemmFault::kNone these are
// the functions that they replace.
#ifndef OCTET_TESTS_FAULTS_GEMM_SEAM_H_
#define OCTET_TESTS_FAULTS_GEMM_SEAM_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"
#include "tests/faults/gemm_fault.h"

namespace octet::device {

using Where = internal::Location;

inline bool Planted(faults::GemmFault fault) { return faults::planted_gemm.fault == fault; }

template <Scope scope, typename T>
__device__ inline void SeamStoreRelaxed(T* p, T v, Where where = Where::current()) {
  if (!Planted(faults::GemmFault::kCounterNotCleared)) StoreRelaxed<scope>(p, v, where);
}

template <Scope scope, typename T>
__device__ inline T SeamFetchAddRelaxed(T* p, T v, Where where = Where::current()) {
  const T unit = FetchAddRelaxed<scope>(p, v, where);
  if (unit == 1 && Planted(faults::GemmFault::kUnitLost)) {
    return FetchAddRelaxed<scope>(p, v, where);
  }
  return Planted(faults::GemmFault::kUnitTwice) ? unit / 2 : unit;
}

__device__ inline void SeamStoreStream(Vec16* p, const Vec16& v, Where where = Where::current()) {
  if (Planted(faults::GemmFault::kRowPastTheEnd)) p += faults::planted_gemm.out_row_vecs;
  StoreStream(p, v, where);
}

class SeamScaleRows {
 public:
  static SeamScaleRows OfRows(const GemmScales& scales, int64_t first) {
    return SeamScaleRows(ScaleRows::OfRows(scales, first));
  }
  template <bool gated>
  static SeamScaleRows OfColumns(const GemmOperands& p, int expert, int column) {
    const bool first = Planted(faults::GemmFault::kColumnsUnscaled);
    return SeamScaleRows(ScaleRows::OfColumns<gated>(p, expert, first ? 0 : column));
  }
  static int UpRow(const GemmOperands& p) {
    return Planted(faults::GemmFault::kUpScaledAsGate) ? 0 : ScaleRows::UpRow(p);
  }
  float At(int row, int group) const {
    return rows_.At(row, Planted(faults::GemmFault::kWrongScale) ? 0 : group);
  }

 private:
  explicit SeamScaleRows(const ScaleRows& rows) : rows_(rows) {}

  ScaleRows rows_;
};

}  // namespace octet::device

#define StoreRelaxed SeamStoreRelaxed
#define FetchAddRelaxed SeamFetchAddRelaxed
#define StoreStream SeamStoreStream
#define ScaleRows SeamScaleRows

#endif  // OCTET_TESTS_FAULTS_GEMM_SEAM_H_
