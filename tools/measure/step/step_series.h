// Series of steps, for all commands that time steps.
#ifndef OCTET_TOOLS_MEASURE_STEP_STEP_SERIES_H_
#define OCTET_TOOLS_MEASURE_STEP_STEP_SERIES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "tools/measure/step/step_runner.h"
#include "tools/step/run_spec.h"
#include "tools/support/domain.h"
#include "tools/support/progress.h"
#include "tools/workload/workload.h"

namespace octet {

// Runs steps of one workload. Each step has inputs that no other step of the object has. The
// workload and the progress must outlive it.
class StepSeries {
 public:
  StepSeries(Workload& workload, const Progress& progress)
      : workload_(workload), progress_(progress) {}

  // For the progress: how many steps of a series were run before these, and how many it has.
  struct Place {
    int done = 0;
    int all = 0;
  };
  absl::StatusOr<std::vector<StepResult>> Run(StepRunner& runner, absl::string_view what, int steps,
                                              StepForm form, const Place& place);
  absl::StatusOr<std::vector<StepResult>> Run(StepRunner& runner, absl::string_view what, int steps,
                                              StepForm form) {
    return Run(runner, what, steps, form, {.all = steps});
  }

 private:
  Workload& workload_;
  const Progress& progress_;
  uint32_t next_step_ = 0;
};

// Keeps the GPUs under load for a while before a series is timed; the last of `warmup` tells how
// many steps that takes. Does nothing if that step takes longer, if there is none, or under a
// schedule, where each run must be the same.
absl::Status Heat(StepRunner& runner, const std::vector<StepResult>& warmup);

// Creates the heap that options.heap_bytes asks for; nullptr if it asks for none.
absl::StatusOr<std::unique_ptr<SymmetricHeap>> MakeRunHeap(Node& node, const RunSpec& options);

// Calls over all nodes, and the heap that they lie in.
struct Calls {
  std::unique_ptr<SymmetricHeap> heap;
  std::unique_ptr<ExpertParallel> ep;
};

// Collective. Makes calls of options.workload.config as the options ask for, and sets
// options.nodes.intranode_order to the order that was chosen. All nodes have chosen alike.
absl::StatusOr<Calls> MakeCalls(Domain& domain, RunSpec& options);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_STEP_SERIES_H_
