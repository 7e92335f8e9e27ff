// Measures and verifies the calls of RoutedExperts beside their parts: what
// `octet perf --operation=dispatch_gemm` and `gemm_combine` do.
#ifndef OCTET_TOOLS_MEASURE_FUSED_FUSED_RUN_H_
#define OCTET_TOOLS_MEASURE_FUSED_FUSED_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tuning/tuning.h"
#include "octet/node.h"
#include "octet/routed_experts.h"
#include "octet/trace.h"
#include "tools/step/run_spec.h"
#include "tools/support/progress.h"

namespace octet {

// A way to make the call.
struct FusedWay {
  FusedChoice choice = {};
  std::string name = {};  // in the report; empty: that of the fusion
};

// DispatchGemm with kTiles as it is, and without each of the things that make it fast: "1-stage"
// (rows cross a link for each choice), "by-token" (unsorted), "by-expert" (a tile waits for all
// rows of its expert), and "plain".
std::vector<FusedWay> FusedAblation();

struct FusedRunOptions {
  FusedCall operation = FusedCall::kDispatchGemm;
  RunSpec run = {};  // the shape and the steps
  int intermediate = 0;
  GemmActivation activation = GemmActivation::kSwiGlu;  // of kDispatchGemm
  WeightsIn weights_in = WeightsIn::kCombine;
  std::vector<FusedWay> ways =
      {};  // beside kNone, which is always measured; kAuto may be among them
  bool use_measured_tuning = true;
  int check_steps = 0;  // of the last ones
};

// One part, or the whole call in one way.
struct FusedRow {
  std::string what = {};                 // dispatch, gemm, combine, or the way
  FusedChoice choice = {};               // of a whole call: with every choice made
  bool chosen = false;                   // by Fusion::kAuto
  std::vector<double> us = {};           // of each step: the slowest rank's device time
  std::optional<double> tflops = {};     // of a GPU, mean of all; median over the steps
  std::optional<double> wire_gbps = {};  // of the busiest rank, median over the steps
  // 1 - (us - the longer of the parts) / the shorter one, in medians: 1 if the shorter part takes
  // no time of its own. Only of whole calls.
  std::optional<double> overlap = {};
  std::optional<int64_t> wrong = {};  // rows, of a product checked elements; empty: not verified
};

// A fusion that was not measured.
struct FusedLeftOut {
  std::string name;
  std::string reason;
};

struct FusedReport {
  FusedRunOptions options = {};
  EpConfig config = {};             // with every choice made
  int tokens = 0;                   // of a rank: those of rank 0
  std::vector<FusedRow> rows = {};  // the two parts; none; the other fusions
  std::vector<FusedLeftOut> left_out = {};
  int verified_steps = 0;
  std::string first_difference = {};  // empty if there is none
};

// Every step has routing, weights of the choices and rows of its own; all rows of the report have
// the same in turn. Of a verified step, the dispatch's rows are compared with the reference and
// parts of the product with float64, and what every whole call has written with what the separate
// calls have. Errors are those of RoutedExperts::Create with kNone, and kResourceExhausted.
absl::StatusOr<FusedReport> MeasureFused(Node& node, const FusedRunOptions& options,
                                         const Progress& progress);

// Calls whose kernels record, and the same calls without recording.
struct FusedTrace {
  FusedRunOptions options = {};
  EpConfig config = {};               // with every choice made
  std::string what = {};              // the fusion
  std::vector<double> plain_us = {};  // of each step: the slowest rank's device time
  std::vector<double> traced_us = {};
  std::vector<TraceTag> tags = {};
  uint32_t first_product_tag = 0;  // the first of GemmTraceTags()
  // Of the last traced call, ordered by (rank, block, track, start).
  std::vector<TraceSlice> slices = {};
  uint64_t events_dropped = 0;
  std::string first_difference = {};  // empty if there is none
};

// Runs calls of both kinds in turns. options.ways has one element. Verifies as MeasureFused
// does; errors are those of RoutedExperts::Create, and kResourceExhausted.
absl::StatusOr<FusedTrace> TraceFused(Node& node, const FusedRunOptions& options,
                                      const Progress& progress);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_FUSED_FUSED_RUN_H_
