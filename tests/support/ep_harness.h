// One node and one ExpertParallel, and steps on them that are held against the reference: what
// tests add to the memory, the calls and the verification of steps that tools/ has.
#ifndef OCTET_TESTS_SUPPORT_EP_HARNESS_H_
#define OCTET_TESTS_SUPPORT_EP_HARNESS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "runtime/memory/device_memory.h"
#include "runtime/memory/pinned_memory.h"
#include "tests/support/random_step.h"
#include "tools/check/verify.h"
#include "tools/step/step_buffers.h"
#include "tools/step/step_executor.h"
#include "tools/workload/step_input.h"

namespace octet {

// How a rank goes through a step. Combine applies the experts if it can, but for kSeparateExpert.
enum class Form {
  kFused,           // Dispatch, Combine
  kSplit,           // the four phases one by one
  kSeparateExpert,  // Dispatch, a pointwise kernel, Combine
  kCached,          // as kFused, with the layout of the dispatch before, if there was one
};

// Differences from the reference are kDataLoss with the first of them.
class EpHarness {
 public:
  static absl::StatusOr<std::unique_ptr<EpHarness>> Create(int num_ranks, const EpConfig& config,
                                                           NodeOptions options = {});
  // Makes the ExpertParallel once more, traced.
  absl::Status Trace(TraceCollector& trace);

  // ---- Whole steps.

  // Runs the step, rank r in forms[r % forms.size()]. Compares what was received, and y.
  absl::Status Step(const StepInput& input, const std::vector<Form>& forms = {Form::kFused});

  // All steps in one Run and with nothing on the host between them, so that ranks may be calls
  // apart. Of the steps y is compared, of the last one also what was received.
  absl::Status Steps(const std::vector<StepInput>& inputs,
                     const std::vector<Form>& forms = {Form::kFused});

  // The same with an even number of steps, two of which are on their way at the same time: with
  // kSplit, both are dispatched before the first is received, and so with their combines; otherwise
  // both are dispatched before they are combined. Of all of them y is compared.
  absl::Status StepsInPairs(const std::vector<StepInput>& inputs, const std::vector<Form>& forms);

  // One dispatch, and a combine of it for each of `inputs`, which differ in expert_scale alone,
  // with nothing on the host between them. Of all of them y is compared.
  absl::Status CombinesOfOneDispatch(const std::vector<StepInput>& inputs);

  // As many dispatches as can be on their way and one more, with no combine that would keep the
  // ranks together. Those after the first have one token at most. Rank `late` receives the first
  // `late_by` after it has sent what it can; what it then counts is compared.
  absl::Status LateReceiver(const StepInput& input, int late,
                            absl::Duration late_by = absl::ZeroDuration());

  // ---- Steps in parts, each of them on all ranks. Experts run on the host, and work on x.

  // Uploads `input` and dispatches it. `cached`: handles of all ranks, whose layouts are used
  // again.
  absl::Status Dispatch(const StepInput& input, const std::vector<DispatchHandle>& cached = {});
  // Likewise by `dispatch`, which is called on each rank's thread.
  absl::Status DispatchBy(
      const StepInput& input,
      absl::FunctionRef<absl::StatusOr<Received>(Rank&, const DispatchArgs&)> dispatch);
  // The handles of all ranks' last dispatches.
  std::vector<DispatchHandle> Handles() const;
  // Compares what the last dispatch has delivered.
  absl::Status CheckReceived(const StepInput& input);
  // Uploads the outputs of the experts, for the combine of `input`.
  absl::Status RunExperts(const StepInput& input);
  // Runs the experts and combines `handles`. Compares y.
  absl::Status Combine(const StepInput& input, const std::vector<DispatchHandle>& handles,
                       absl::Span<const uint16_t> bias = {});
  // All of these parts in their order.
  absl::Status StepInParts(const StepInput& input);

  // ---- What else a test needs to make calls itself.

  Node& node() { return *node_; }
  ExpertParallel& ep() { return *ep_; }
  const EpConfig& config() const { return config_; }
  // What peers write into.
  const SymmetricHeap& heap() const { return *heap_; }
  StepBuffers& buffers(int rank) { return buffers_[static_cast<size_t>(rank)]; }
  // What the rank has received last, in these functions.
  Received& received(int rank) { return received_[static_cast<size_t>(rank)]; }

  // Copies the step's input to the GPUs. The functions above do it by themselves.
  absl::Status Upload(const StepInput& input);
  // On the rank's thread: the same for this rank, into memory of the test's own.
  absl::Status Upload(Rank& rank, const StepInput& input, StepBuffers& buffers) const;
  // Arguments of calls for what was uploaded last; combine takes the rows that were received.
  DispatchArgs dispatch_args(int rank) const;
  ScaledCombineArgs combine_args(int rank) const;

  // On the rank's thread: a step of what was uploaded last by this rank alone, which keeps what it
  // receives. For steps that some ranks take part in.
  absl::Status RunStep(Rank& rank, Form form);
  // Compares what one rank has received in its last step.
  absl::Status CheckReceived(const StepInput& input, int rank);

  // Compares y of what was uploaded last on all ranks; on the rank's thread, that in `y`.
  absl::Status CheckY(const StepInput& input, absl::Span<const uint16_t> bias = {});
  absl::Status CheckY(Rank& rank, const StepInput& input, const void* y) const;
  // Returns y as it is on the GPU, [T][H].
  absl::StatusOr<std::vector<uint16_t>> Y(int rank);

 private:
  // The rank's memory of each of several steps.
  using RankBuffers = std::vector<StepBuffers>;

  absl::Status InitRank(Rank& rank);
  absl::Status RunRank(Rank& rank, Form form, int num_rows, StepBuffers& buffers);
  // All steps in one Run, by body(rank, the rank's memory of each step). Compares all y.
  absl::Status InOneRun(const std::vector<StepInput>& inputs,
                        const std::function<absl::Status(Rank&, RankBuffers&)>& body);
  absl::Status RunPair(Rank& rank, Form form, const std::array<const StepBuffers*, 2>& buffers);
  // Copies delivered rows in stream order, since combine may overwrite them.
  absl::Status KeepReceived(Rank& rank, int num_rows);
  // Runs `compare` on all ranks. Returns what it has found on the first rank that has a difference,
  // which is the same one each time.
  absl::Status Compare(absl::FunctionRef<absl::Status(Rank&, Verification&)> compare) const;
  absl::Status CompareReceived(Rank& rank, const StepInput& input, Verification& found) const;
  absl::Status CompareY(Rank& rank, const StepInput& input, const void* y,
                        absl::Span<const uint16_t> bias, Verification& found) const;
  StepExecutor ExecutorOf(Form form) const;

  std::unique_ptr<Node> node_;
  std::unique_ptr<SymmetricHeap> heap_;
  std::unique_ptr<ExpertParallel> ep_;
  EpConfig config_;  // ep_'s, with all choices made
  std::vector<StepBuffers> buffers_;
  std::vector<Received> received_;
  std::vector<DeviceMemory> received_rows_;  // of each rank's last dispatch
  std::vector<PinnedMemory> staging_;
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_EP_HARNESS_H_
