#include "tools/measure/step/overlap_run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/ep/ep_calls.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/step/compute_work.h"
#include "tools/measure/step/step_series.h"
#include "tools/measure/trace/traced_run.h"
#include "tools/support/text_table.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

// The form of a series' steps.
struct Form {
  StepForm form;
  bool computes;
};
constexpr Form kAlone = {StepForm::kFused, false};
constexpr Form kInTurn = {StepForm::kFused, true};
constexpr Form kOverlapped = {StepForm::kPhases, true};

}  // namespace

absl::StatusOr<OverlapResult> ExecuteOverlap(Node& node, const RunSpec& options, double compute_us,
                                             const Progress& progress) {
  OverlapResult result;
  result.options = options;
  EpConfig config = options.workload.config;
  const int units = node.topology().gpus[0].num_compute_units;
  if (config.tuning.blocks == 0 && config.max_blocks == 0) {
    config.max_blocks = std::max(units / 2, 2);
  }
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<SymmetricHeap> heap, MakeRunHeap(node, options));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<ExpertParallel> ep,
                         ExpertParallel::Create(node, config, {.heap = heap.get()}));
  result.config = ep->config();
  const int blocks = result.config.tuning.blocks;
  result.compute_blocks = blocks < units ? units - blocks : units;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<ComputeWork> compute,
                         ComputeWork::Create(node, compute_us, result.compute_blocks));
  result.compute_us = compute->measured_us();
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<StepRunner> plain,
                         StepRunner::Create(node, *ep, options));
  OCTET_ASSIGN_OR_RETURN(const TracedSteps traced,
                         TracedSteps::Create(node, result.config, options, result.compute_blocks));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options.workload));
  StepSeries series(*workload, progress);
  const auto step = [&](StepRunner& runner, const Form& form,
                        std::vector<StepResult>& results) -> absl::Status {
    runner.set_compute(form.computes ? compute.get() : nullptr);
    OCTET_ASSIGN_OR_RETURN(std::vector<StepResult> steps,
                           series.Run(runner, "overlapped step", 1, form.form));
    results.push_back(std::move(steps[0]));
    if (!form.computes) return absl::OkStatus();
    return node.Run([&](Rank& rank) { return compute->Verify(rank); });
  };
  std::vector<StepResult> warmup;
  for (int i = 0; i < options.warmup; ++i) {
    OCTET_RETURN_IF_ERROR(step(*plain, kOverlapped, warmup));
    OCTET_RETURN_IF_ERROR(step(*plain, kInTurn, warmup));
  }
  OCTET_RETURN_IF_ERROR(Heat(*plain, warmup));
  for (int i = 0; i < options.iters; ++i) {
    OCTET_RETURN_IF_ERROR(step(*plain, kAlone, result.alone));
    OCTET_RETURN_IF_ERROR(step(*plain, kInTurn, result.in_turn));
    OCTET_RETURN_IF_ERROR(step(*plain, kOverlapped, result.overlapped));
  }
  std::vector<TraceTag> tags(traced.ep->calls().trace_tags().begin(),
                             traced.ep->calls().trace_tags().end());
  compute->Record(traced.collector.get(), blocks, static_cast<uint32_t>(tags.size()));
  tags.push_back({.name = "compute", .phase = {"compute"}});
  OCTET_RETURN_IF_ERROR(step(*traced.runner, kOverlapped, warmup));
  OCTET_RETURN_IF_ERROR(step(*traced.runner, kOverlapped, result.traced));
  OCTET_ASSIGN_OR_RETURN(const std::vector<TraceSlice> slices, traced.collector->Collect());
  OCTET_RETURN_IF_ERROR(TracedSteps::Write(node, slices, tags, options.trace));
  return result;
}

std::string OverlapText(const OverlapResult& result) {
  const double alone = MedianUs(result.alone);
  const double in_turn = MedianUs(result.in_turn);
  const double overlapped = MedianUs(result.overlapped);
  constexpr double kPercent = 100;
  std::string text = absl::StrCat(
      Comment(absl::StrFormat("a kernel computes on %d blocks during the send of dispatch and of "
                              "combine; receives follow it",
                              result.compute_blocks)),
      Comment(absl::StrFormat("medians of %d steps of each kind, in turns; hidden: of the time of "
                              "dispatch and combine alone",
                              result.alone.size())));
  absl::StrAppendFormat(&text, "#%11s%12s%12s%12s%12s%12s\n#%11s%12s%12s%12s%12s%12s\n", "alone",
                        "kernel", "in turn", "overlapped", "hidden", "hidden", "(us)", "(us)",
                        "(us)", "(us)", "(us)", "(%)");
  absl::StrAppendFormat(&text, "%12.1f%12.1f%12.1f%12.1f%12.1f%12.1f\n", alone, result.compute_us,
                        in_turn, overlapped, in_turn - overlapped,
                        (in_turn - overlapped) / alone * kPercent);
  return text;
}

}  // namespace octet
