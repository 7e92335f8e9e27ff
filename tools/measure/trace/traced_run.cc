#include "tools/measure/trace/traced_run.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "kernels/ep/ep_calls.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/step/step_series.h"
#include "tools/support/atomic_file.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

constexpr int kEventsPerBlock = 8192;

LatencyBudget BudgetOfSlowest(const StepResult& step, absl::Span<const TraceSlice> slices,
                              absl::Span<const TraceTag> tags) {
  const auto slowest = absl::c_max_element(
      step.ranks,
      [](const RankStepResult& a, const RankStepResult& b) { return a.all_us < b.all_us; });
  return BudgetOf(slices, tags, static_cast<int>(slowest - step.ranks.begin()), slowest->all_us);
}

}  // namespace

absl::StatusOr<TracedSteps> TracedSteps::Create(Node& node, const EpConfig& config,
                                                const RunSpec& options, int more_blocks) {
  TracedSteps steps;
  OCTET_ASSIGN_OR_RETURN(
      steps.collector,
      TraceCollector::Create(node, config.tuning.blocks + more_blocks, kEventsPerBlock));
  OCTET_ASSIGN_OR_RETURN(steps.heap, MakeRunHeap(node, options));
  OCTET_ASSIGN_OR_RETURN(
      steps.ep, ExpertParallel::Create(node, config,
                                       {.heap = steps.heap.get(), .trace = steps.collector.get()}));
  OCTET_ASSIGN_OR_RETURN(steps.runner,
                         StepRunner::Create(node, *steps.ep, options, steps.collector.get()));
  return steps;
}

absl::Status TracedSteps::Write(const Node& node, absl::Span<const TraceSlice> slices,
                                absl::Span<const TraceTag> tags, const std::string& path) {
  std::vector<std::string> gpu_names;
  for (const GpuInfo& gpu : node.topology().gpus) gpu_names.push_back(gpu.name);
  return WriteFileAtomically(path, {TraceJson(slices, tags, {.gpus = gpu_names})});
}

absl::StatusOr<TraceResult> ExecuteTrace(Node& node, const RunSpec& options,
                                         const Progress& progress) {
  TraceResult result;
  result.options = options;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<SymmetricHeap> heap, MakeRunHeap(node, options));
  OCTET_ASSIGN_OR_RETURN(
      const std::unique_ptr<ExpertParallel> ep,
      ExpertParallel::Create(node, options.workload.config, {.heap = heap.get()}));
  result.config = ep->config();
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<StepRunner> plain,
                         StepRunner::Create(node, *ep, options));
  OCTET_ASSIGN_OR_RETURN(const TracedSteps traced,
                         TracedSteps::Create(node, result.config, options));
  result.clock_offsets.assign(traced.collector->clock_offsets().begin(),
                              traced.collector->clock_offsets().end());
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options.workload));
  StepSeries series(*workload, progress);
  std::vector<StepResult> warmup;
  const auto step = [&](StepRunner& runner, std::vector<StepResult>& results) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(std::vector<StepResult> steps,
                           series.Run(runner, "traced step", 1, StepForm::kFused));
    results.push_back(std::move(steps[0]));
    return absl::OkStatus();
  };
  for (int i = 0; i < options.warmup; ++i) {
    OCTET_RETURN_IF_ERROR(step(*traced.runner, warmup));
    OCTET_RETURN_IF_ERROR(step(*plain, warmup));
  }
  OCTET_RETURN_IF_ERROR(Heat(*plain, warmup));
  std::vector<TraceSlice> all;
  std::vector<TraceSlice> last;
  std::vector<LatencyBudget> budgets;
  for (int i = 0; i < options.iters; ++i) {
    progress.Show("step with and without a trace", i + 1, options.iters);
    OCTET_RETURN_IF_ERROR(step(*plain, result.plain));
    OCTET_RETURN_IF_ERROR(step(*traced.runner, result.traced));
    OCTET_ASSIGN_OR_RETURN(last, traced.collector->Collect());
    result.kernels.push_back(TimeKernels(last, traced.ep->calls().trace_tags(), node.num_ranks()));
    budgets.push_back(BudgetOfSlowest(result.traced.back(), last, traced.ep->calls().trace_tags()));
    result.events_dropped += traced.collector->num_dropped();
    all.insert(all.end(), last.begin(), last.end());
  }
  result.summary =
      SummarizeTrace(all, traced.ep->calls().trace_tags(), node.num_ranks(), options.iters);
  result.budget = MedianBudget(budgets);
  OCTET_RETURN_IF_ERROR(
      TracedSteps::Write(node, last, traced.ep->calls().trace_tags(), options.trace));
  return result;
}

}  // namespace octet
