// Runs grouped products whose kernels record what their blocks do with each tile, and the same
// products without recording.
#ifndef OCTET_TOOLS_MEASURE_TRACE_GEMM_TRACE_H_
#define OCTET_TOOLS_MEASURE_TRACE_GEMM_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/gemm_tiles.h"
#include "octet/node.h"
#include "octet/trace.h"
#include "tools/measure/gemm/gemm_operands.h"
#include "tools/measure/gemm/gemm_setup.h"
#include "tools/support/statistics.h"

namespace octet {

// The slices of one kind on one track of all blocks.
struct GemmWorkSummary {
  absl::string_view track;
  absl::string_view work;
  int64_t slices = 0;
  double total_us = 0;  // of all blocks
  double share = 0;     // of the blocks' time: blocks * span_us
  double median_us = 0;
  double p99_us = 0;
};

// Where the time of one product went.
struct GemmTraceSummary {
  int blocks = 0;
  double span_us = 0;                  // from the first block's start to the last block's end
  std::vector<GemmWorkSummary> works;  // those that were recorded, by track
  // On the track of what multiplies, before a block's first slice and behind its last: shares of
  // the blocks' time, and the longest of one block. All of the time of a block without tiles is
  // behind.
  double before = 0;
  double behind = 0;
  double longest_behind_us = 0;

  double TotalUs(absl::string_view track, absl::string_view work) const;
};

// `slices`: of one product by `blocks` blocks, in any order.
GemmTraceSummary SummarizeGemmTrace(absl::Span<const TraceSlice> slices, int blocks);

// Returns a table, under lines that begin with '#'. `flops`: of the product.
std::string GemmTraceText(const GemmTraceSummary& summary, double flops);

struct GemmTraceResult {
  GemmTiles tiles = GemmTiles::kWide;
  Statistics plain_us;  // as many as traced ones, in turn with them
  Statistics traced_us;
  GemmTraceSummary summary;     // of the last traced product
  uint64_t events_dropped = 0;  // of that product
  GemmCheck check;              // of what it has computed
};

// Warms up, runs options.iters products of each kind on the node's first GPU, and writes the slices
// of the last traced one to `path`. options.tiles has one element.
absl::StatusOr<GemmTraceResult> TraceGemm(Node& node, const GemmOptions& options,
                                          const std::string& path);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TRACE_GEMM_TRACE_H_
