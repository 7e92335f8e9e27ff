// Enqueues the calls of a step on one rank: dispatch, the stand-ins of the experts, combine.
#ifndef OCTET_TOOLS_STEP_STEP_EXECUTOR_H_
#define OCTET_TOOLS_STEP_STEP_EXECUTOR_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/oracle/reference.h"
#include "kernels/oracle/stand_in.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "tools/step/step_buffers.h"

namespace octet {

// The calls of a step, in order. A step has either kDispatch or the two halves of it, and likewise
// kCombine.
enum class StepCall {
  kDispatch,
  kDispatchSend,
  kDispatchReceive,
  kExperts,
  kCombine,
  kCombineSend,
  kCombineReceive,
};

// Returns whether Combine itself can apply the experts' stand-ins: one row of the dtype is received
// for each choice.
bool CanFuseExpert(const EpConfig& config);

// Returns how many rows in expert order each rank receives when every rank r dispatches inputs[r]:
// padding included, and if rows lie apart, all that there is room for. Ids that name no expert do
// not count; no rank has more rows than EpConfig::max_rows.
std::vector<int> RowsInExpertOrder(const EpConfig& config, absl::Span<const RankInput> inputs);

// Runs on the rank's thread inside Node::Run; all calls are enqueued on rank.stream().
class StepExecutor {
 public:
  struct Options {
    bool split = false;         // dispatch and combine as two calls each
    bool fuse_experts = false;  // combine applies the experts, if it can
    int num_nodes = 1;          // that the calls are over
  };
  // Calls its second argument, which enqueues the call, once. Whatever else it enqueues comes
  // before or after the call.
  using Around = absl::FunctionRef<absl::Status(StepCall, absl::FunctionRef<absl::Status()>)>;

  // `ep` must outlive the executor.
  StepExecutor(ExpertParallel& ep, const Options& options);

  // Fills with NaNs what a step of `rows` received rows (RowsInExpertOrder) writes.
  absl::Status Poison(Rank& rank, const StepBuffers& buffers, int rows) const;

  // Enqueues a step of what `buffers` were given last. Sets `received` as soon as dispatch has
  // returned it.
  absl::Status Enqueue(Rank& rank, const StepBuffers& buffers, Received& received,
                       Around around = JustCall) const;

  // The parts of a step between dispatch and combine. Enqueues the experts, unless combine applies
  // them; and returns the arguments of the combine.
  absl::Status EnqueueExperts(Rank& rank, const StepBuffers& buffers,
                              const Received& received) const;
  ScaledCombineArgs combine_args(const StepBuffers& buffers, const Received& received) const;

 private:
  static absl::Status JustCall(StepCall, absl::FunctionRef<absl::Status()> enqueue) {
    return enqueue();
  }

  ExpertParallel& ep_;
  const EpConfig within_;  // of the rows that a rank receives: within its node
  const bool split_;
  const bool fuse_experts_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_STEP_EXECUTOR_H_
