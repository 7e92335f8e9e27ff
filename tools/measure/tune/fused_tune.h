// Looks for the fastest way to make a call with a product: what
// `octet tune --operation=dispatch_gemm` and `gemm_combine` do.
#ifndef OCTET_TOOLS_MEASURE_TUNE_FUSED_TUNE_H_
#define OCTET_TOOLS_MEASURE_TUNE_FUSED_TUNE_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/tuning/tuning.h"
#include "octet/node.h"
#include "tools/measure/fused/fused_run.h"
#include "tools/measure/tune/tune.h"
#include "tools/support/progress.h"

namespace octet {

struct FusedTrial {
  FusedChoice choice;  // with every choice made
  double us = 0;       // median
  double none_us = 0;  // of separate kernels in the same steps
};

struct FusedTuneResult {
  FusedTuningKey key;
  FusedChoice tuned;               // the fastest found; kNone if nothing is faster
  std::vector<FusedTrial> trials;  // in the order of the search
  TuneComparison comparison;       // with kNone, the built-in choice; no pairs if `tuned` is that
};

// Tries every fusion of the call with the built-in tuning, then other values of one field after the
// other, each beside the best so far in the same steps. Compares the winner with separate kernels
// on other inputs. `options`: of a call by high_throughput; `ways` is ignored. `report` is called
// after each trial. Errors are those of MeasureFused; kDataLoss if results are wrong.
absl::StatusOr<FusedTuneResult> TuneFused(Node& node, const FusedRunOptions& options,
                                          absl::FunctionRef<void(const FusedTrial&)> report,
                                          const Progress& progress);

// Return the head of the table of trials, a line of it, and what became of them.
std::string FusedTuneHead(FusedCall call);
std::string FusedTuneLine(FusedCall call, const FusedTrial& trial);
std::string FusedVerdict(const FusedTuneResult& result);

// Returns the entry for the result. Its note says how it was measured.
FusedTuningEntry EntryOf(const FusedTuneResult& result, const FusedRunOptions& options);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TUNE_FUSED_TUNE_H_
