// Times steps of dispatch, experts and combine on all ranks: what is around the calls of a step
// (tools/step) to know how long they take, and whether their results are right (tools/check).
#ifndef OCTET_TOOLS_MEASURE_STEP_STEP_RUNNER_H_
#define OCTET_TOOLS_MEASURE_STEP_STEP_RUNNER_H_

#include <hip/hip_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/trace.h"
#include "tools/check/verify.h"
#include "tools/check/verify_step.h"
#include "tools/measure/step/compute_work.h"
#include "tools/step/node_batches.h"
#include "tools/step/run_spec.h"
#include "tools/step/step_executor.h"
#include "tools/support/domain.h"
#include "tools/workload/workload.h"

namespace octet {

enum class StepForm {
  kFused,   // Dispatch, experts, Combine
  kPhases,  // DispatchSend, DispatchReceive, experts, CombineSend, CombineReceive
  kCalls,   // Dispatch and experts; Combine: each timed from its own barrier
};

// In the order of a step.
enum class Phase { kDispatchSend, kDispatchReceive, kExpert, kCombineSend, kCombineReceive };
inline constexpr size_t kNumPhases = 5;

enum class Call { kDispatch, kCombine };
inline constexpr size_t kNumCalls = 2;

// One rank's part of a step.
struct RankStepResult {
  int num_tokens = 0;
  int64_t rows_sent = 0;  // within its node
  int64_t rows_received = 0;
  // Bytes of dispatch and combine together. Logical: payload of the rows that this rank receives,
  // each token once, its own included, and the same again for combine. Wire: what it stores into
  // other GPUs of its node in dispatch, and they into it in combine.
  int64_t logical_bytes = 0;
  int64_t dispatch_logical_bytes = 0;
  int64_t wire_bytes = 0;
  int64_t dispatch_wire_bytes = 0;  // of wire_bytes; the rest are combine's
  // With several nodes: what this rank sends to other nodes in dispatch, and gets back in combine.
  int64_t rail_rows = 0;  // tokens that other nodes need, each once for each node
  int64_t rail_bytes = 0;
  int64_t dispatch_rail_bytes = 0;               // of rail_bytes; the rest are combine's
  double all_us = 0;                             // device events around all launches
  std::array<double, kNumPhases> phase_us = {};  // StepForm::kPhases only
  std::array<double, kNumCalls> call_us = {};    // StepForm::kCalls only; all_us is their sum
  Verification verification;
};

struct StepResult {
  std::vector<RankStepResult> ranks;  // of all nodes
  double all_us = 0;                  // the slowest rank's
  double wall_us = 0;  // from the barrier to the last rank's completion, on the (slowest) host
};

// Returns the median of all_us.
double MedianUs(absl::Span<const StepResult> steps);
// Returns the first difference in steps that were verified; empty if there is none.
std::string FirstDifferenceOf(absl::Span<const StepResult> steps);

// Allocates everything that the GPUs need at creation. Not thread-safe. With several nodes all
// functions but the setters are collective, and StepForm::kPhases does not exist.
class StepRunner {
 public:
  // `ep` must be of `domain` and made for `options`; both must outlive the runner. Not during Run.
  // `trace`, within a node: where `ep` records; after Run it holds just the timed step.
  static absl::StatusOr<std::unique_ptr<StepRunner>> Create(Domain& domain, ExpertParallel& ep,
                                                            const RunSpec& options,
                                                            TraceCollector* trace = nullptr);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Runs one step with the workload's current inputs, and verifies it if that is wanted. First
  // fills the memory that the GPUs receive into and write with NaNs.
  absl::StatusOr<StepResult> Run(const Workload& workload, StepForm form);

  // Sets whether the next steps are verified; the options say whether the first ones are.
  void set_check(bool check) { check_ = check; }

  // Sets a kernel of the caller that the next steps run twice: after each call or, in
  // StepForm::kPhases, concurrently with each send. Null: none.
  void set_compute(ComputeWork* compute) { compute_ = compute; }

  // Captures the calls of a step with the workload's current inputs, without executing it. From
  // then on StepForm::kFused replays a graph of the whole step, StepForm::kCalls one of each call.
  // Inputs may change, but not a rank's number of tokens. Errors are those of Graph::Capture.
  absl::Status Capture(const Workload& workload);

  // Repeats the last step, neither timed nor verified: the clocks of GPUs that have been idle rise
  // only under load.
  absl::Status Heat(int steps);

  // Returns the results of the last step, by rank of this node. Rows that combine has overwritten
  // (kPull) are dispatched once more.
  absl::StatusOr<std::vector<RankOutput>> Download(const Workload& workload);

 private:
  struct RankState;

  StepRunner(Domain& domain, DomainBarrier barrier, ExpertParallel& ep, const RunSpec& options,
             TraceCollector* trace);
  absl::Status Init();
  absl::Status InitRank(Rank& rank);
  // Does everything before the timed step.
  absl::Status Prepare(Rank& rank, const RankInput& input);
  absl::Status RunRank(Rank& rank, const Workload& workload, StepForm form, RankStepResult& result);
  absl::Status Poison(Rank& rank, StepForm form);
  absl::Status Launch(Rank& rank, StepForm form);
  absl::Status LaunchPhases(Rank& rank);
  absl::Status LaunchGraphs(Rank& rank, StepForm form);
  absl::Status CaptureRank(Rank& rank, StepForm form);
  absl::Status RecordEvent(Rank& rank, size_t event);
  // Records event `event`, the start of a timed interval, after a barrier of the GPUs if that is
  // wanted.
  absl::Status RecordStart(Rank& rank, size_t event);
  // With StepForm::kCalls: ends the time of dispatch, and begins that of combine.
  absl::Status StartCombine(Rank& rank);
  absl::Status ReadTimes(Rank& rank, StepForm form, RankStepResult& result);
  absl::Status Verify(Rank& rank, const Workload& workload, Verification& verification);
  absl::Status DispatchAgain(Rank& rank);
  // Of the ranks of this node.
  std::vector<RankStepResult> CountTraffic(absl::Span<const RankInput> inputs) const;
  // Makes a step of this node into one of all nodes.
  absl::Status Gather(StepResult& step);

  Domain& domain_;
  DomainBarrier barrier_;
  ExpertParallel& ep_;
  TraceCollector* const trace_;
  const RunSpec options_;
  const EpConfig config_;                  // ep_'s, with all choices made
  const std::vector<float> expert_scale_;  // [E]
  NodeBatches batches_;                    // of the step
  const StepExecutor joined_;              // dispatch and combine in one call each
  const StepExecutor split_;
  // GPUs that have been idle for some 30 ms, while the host made a step's inputs, take up to 300 us
  // longer for the next transfers. So each timed step follows one that is not timed.
  const bool wakes_;
  bool check_;
  ComputeWork* compute_ = nullptr;
  std::vector<std::unique_ptr<RankState>> ranks_;  // of this node
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_STEP_RUNNER_H_
