// Measures and checks grouped matrix products: what `octet gemm` does.
#ifndef OCTET_TOOLS_MEASURE_GEMM_GEMM_RUN_H_
#define OCTET_TOOLS_MEASURE_GEMM_GEMM_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/gemm_tiles.h"
#include "octet/grouped_gemm.h"
#include "tools/contenders/gemm_contender.h"
#include "tools/contenders/left_out_contender.h"
#include "tools/measure/gemm/gemm_setup.h"
#include "tools/support/statistics.h"

namespace octet {

struct GemmMeasurement {
  std::string name;     // of a tile shape or a contender
  bool chosen = false;  // the tile shape is the library's choice
  Statistics us;
  double tflops = 0;              // in the median
  double weights_tbps = 0;        // of the experts that have rows, in TB/s
  std::optional<double> of_peak;  // tflops / the GPU's dense peak, at its highest clock
  std::optional<double> mhz;      // of the compute units: median of the products' means
  int64_t checked = 0;            // elements
  int64_t wrong = 0;
  std::string first_wrong;  // a sentence; empty if none is
};

struct GemmReport {
  std::string gpu;
  std::vector<GemmMeasurement> measurements;  // contenders, then tile shapes
  std::vector<LeftOutContender> left_out;
};

// Runs on the first GPU. Operands are random; the L2 is flushed before each timed product, and the
// GPU idles for 0.2 s before each series, since power limits what matrix units reach. A contender
// that fails, or lacks the epilogue, is left out. kResourceExhausted if the operands do not fit.
absl::StatusOr<GemmReport> MeasureGemm(const GemmOptions& options,
                                       absl::Span<const std::unique_ptr<GemmContender>> contenders);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_GEMM_GEMM_RUN_H_
