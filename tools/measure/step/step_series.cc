#include "tools/measure/step/step_series.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ep/ep_calls.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"

namespace octet {
namespace {

constexpr double kHeatUs = 200e3;

}  // namespace

absl::StatusOr<std::vector<StepResult>> StepSeries::Run(StepRunner& runner, absl::string_view what,
                                                        int steps, StepForm form,
                                                        const Place& place) {
  std::vector<StepResult> results;
  for (int i = 0; i < steps; ++i) {
    progress_.Show(what, place.done + i + 1, place.all);
    workload_.Generate(next_step_++);
    OCTET_ASSIGN_OR_RETURN(StepResult result, runner.Run(workload_, form));
    results.push_back(std::move(result));
  }
  return results;
}

absl::Status Heat(StepRunner& runner, const std::vector<StepResult>& warmup) {
  if (warmup.empty() || !CurrentSchedule().empty()) return absl::OkStatus();
  return runner.Heat(static_cast<int>(kHeatUs / std::max(warmup.back().wall_us, 1.0)));
}

absl::StatusOr<std::unique_ptr<SymmetricHeap>> MakeRunHeap(Node& node, const RunSpec& options) {
  if (options.heap_bytes == 0) return std::unique_ptr<SymmetricHeap>();
  OCTET_ASSIGN_OR_RETURN(HeapSize size, HeapBytesOf(options));
  // The surplus is of the kind that every strategy uses.
  size.uncached = options.heap_bytes - size.cached;
  return SymmetricHeap::Create(node, size);
}

absl::StatusOr<Calls> MakeCalls(Domain& domain, RunSpec& options) {
  Calls calls;
  absl::StatusOr<std::unique_ptr<SymmetricHeap>> heap = MakeRunHeap(domain.node(), options);
  OCTET_RETURN_IF_ERROR(domain.Together(heap.status()));
  calls.heap = *std::move(heap);
  OCTET_ASSIGN_OR_RETURN(calls.ep, ExpertParallel::Create(domain, options.workload.config,
                                                          {.heap = calls.heap.get(),
                                                           .rails = RailOptionsOf(options)}));
  if (!domain.several_nodes()) return calls;
  const EpConfig& within = calls.ep->calls().intranode()->config();
  options.nodes.intranode_order = within.combine_order;
  // Results depend on these. The measured tuning of the nodes may differ, or their GPUs.
  OCTET_RETURN_IF_ERROR(domain.Agree(
      "the choices of the calls",
      absl::StrCat(EnumName(within.strategy), ", combine ", EnumName(within.combine_order), " by ",
                   EnumName(within.combine_method))));
  return calls;
}

}  // namespace octet
