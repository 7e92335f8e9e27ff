#include "tools/measure/perf.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "octet/expert_parallel.h"
#include "runtime/status_macros.h"
#include "tools/measure/step_series.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

// The figures of one rank's step for one kind of timing.
struct Sample {
  double us = 0;
  int64_t logical_bytes = 0;
  int64_t wire_bytes = 0;
  int64_t wrong = 0;
};

Sample SampleOf(const RankStepResult& rank, PerfKind kind) {
  const Verification& verification = rank.verification;
  switch (kind) {
    case PerfKind::kDispatch:
      return {.us = rank.call_us[static_cast<size_t>(Call::kDispatch)],
              .logical_bytes = rank.dispatch_logical_bytes,
              .wire_bytes = rank.dispatch_wire_bytes,
              .wrong = verification.wrong_rows};
    case PerfKind::kCombine:
      return {.us = rank.call_us[static_cast<size_t>(Call::kCombine)],
              .logical_bytes = rank.logical_bytes - rank.dispatch_logical_bytes,
              .wire_bytes = rank.wire_bytes - rank.dispatch_wire_bytes,
              .wrong = verification.wrong_tokens};
    case PerfKind::kBoth:
      return {.us = rank.all_us,
              .logical_bytes = rank.logical_bytes,
              .wire_bytes = rank.wire_bytes,
              .wrong = verification.wrong_rows + verification.wrong_tokens};
  }
  return {};
}

PerfFigures FiguresOf(const std::vector<StepResult>& steps, PerfKind kind) {
  PerfFigures figures;
  std::vector<double> logical;
  std::vector<double> wire;
  for (const StepResult& step : steps) {
    Sample most;
    for (const RankStepResult& rank : step.ranks) {
      const Sample sample = SampleOf(rank, kind);
      most.us = std::max(most.us, sample.us);
      most.logical_bytes = std::max(most.logical_bytes, sample.logical_bytes);
      most.wire_bytes = std::max(most.wire_bytes, sample.wire_bytes);
      figures.wrong += sample.wrong;
    }
    figures.us.push_back(most.us);
    logical.push_back(Gbps(most.logical_bytes, most.us));
    wire.push_back(Gbps(most.wire_bytes, most.us));
  }
  figures.logical_gbps = Summarize(std::move(logical)).median;
  figures.wire_gbps = Summarize(std::move(wire)).median;
  return figures;
}

}  // namespace

std::array<PerfFigures, kNumPerfKinds> PerfFiguresOf(const std::vector<StepResult>& fused,
                                                     const std::vector<StepResult>& calls) {
  return {FiguresOf(calls, PerfKind::kDispatch), FiguresOf(calls, PerfKind::kCombine),
          FiguresOf(fused, PerfKind::kBoth)};
}

absl::StatusOr<PerfRow> MeasurePerf(Node& node, Contender* contender, const RunOptions& options,
                                    int check_steps, const Progress& progress) {
  PerfRow row;
  row.options = options;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<ExpertParallel> ep,
                         contender != nullptr
                             ? contender->Create(options.workload.config, {})
                             : ExpertParallel::Create(node, options.workload.config));
  row.config = ep->config();
  row.strategy =
      std::string(contender != nullptr ? contender->name() : EnumName(row.config.strategy));
  if (contender != nullptr) {
    row.options.workload.config.strategy = row.config.strategy;  // not left open
  }
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<StepRunner> runner,
                         StepRunner::Create(node, *ep, options));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options.workload));
  row.tokens = workload->num_tokens(0);
  StepSeries series(*workload, progress);
  const std::string name = absl::StrCat(row.strategy, ", ", row.tokens, " tokens: ");
  // The last steps are verified: reading back between the others would let the GPUs cool down.
  const int checked = std::min(check_steps, options.iters);
  const auto timed = [&](absl::string_view kind, StepForm form) {
    const auto run = [&](int steps, bool check) {
      runner->set_check(check);
      return series.Run(*runner, absl::StrCat(name, check ? "verified " : "timed ", kind), steps,
                        form);
    };
    absl::StatusOr<std::vector<StepResult>> steps = run(options.iters - checked, false);
    if (!steps.ok()) return steps;
    absl::StatusOr<std::vector<StepResult>> last = run(checked, true);
    if (!last.ok()) return last;
    std::move(last->begin(), last->end(), std::back_inserter(*steps));
    return steps;
  };
  runner->set_check(false);
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<StepResult> warmup,
      series.Run(*runner, absl::StrCat(name, "warm-up step"), options.warmup, StepForm::kFused));
  if (options.graph) OCTET_RETURN_IF_ERROR(runner->Capture(*workload));
  OCTET_RETURN_IF_ERROR(Heat(*runner, warmup));
  OCTET_ASSIGN_OR_RETURN(const std::vector<StepResult> fused, timed("step", StepForm::kFused));
  OCTET_RETURN_IF_ERROR(Heat(*runner, warmup));
  OCTET_ASSIGN_OR_RETURN(const std::vector<StepResult> calls,
                         timed("step by calls", StepForm::kCalls));
  row.kinds = PerfFiguresOf(fused, calls);
  row.verified_steps = 2 * checked;
  row.first_difference = FirstDifferenceOf(fused);
  if (row.first_difference.empty()) row.first_difference = FirstDifferenceOf(calls);
  return row;
}

}  // namespace octet
