#include "tools/measure/step/perf.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/nodes/options.h"
#include "octet/enum_names.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/step/step_series.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

// The figures of one rank's step for one kind of timing.
struct Sample {
  double us = 0;
  int64_t logical_bytes = 0;
  int64_t wire_bytes = 0;
  int64_t rail_bytes = 0;
  int64_t wrong = 0;
};

Sample SampleOf(const RankStepResult& rank, PerfKind kind) {
  const Verification& verification = rank.verification;
  switch (kind) {
    case PerfKind::kDispatch:
      return {.us = rank.call_us[static_cast<size_t>(Call::kDispatch)],
              .logical_bytes = rank.dispatch_logical_bytes,
              .wire_bytes = rank.dispatch_wire_bytes,
              .rail_bytes = rank.dispatch_rail_bytes,
              .wrong = verification.wrong_rows};
    case PerfKind::kCombine:
      return {.us = rank.call_us[static_cast<size_t>(Call::kCombine)],
              .logical_bytes = rank.logical_bytes - rank.dispatch_logical_bytes,
              .wire_bytes = rank.wire_bytes - rank.dispatch_wire_bytes,
              .rail_bytes = rank.rail_bytes - rank.dispatch_rail_bytes,
              .wrong = verification.wrong_tokens};
    case PerfKind::kBoth:
      return {.us = rank.all_us,
              .logical_bytes = rank.logical_bytes,
              .wire_bytes = rank.wire_bytes,
              .rail_bytes = rank.rail_bytes,
              .wrong = verification.wrong_rows + verification.wrong_tokens};
  }
  return {};
}

PerfFigures FiguresOf(const std::vector<StepResult>& steps, PerfKind kind) {
  PerfFigures figures;
  std::vector<Sample> samples;
  for (const StepResult& step : steps) {
    Sample most;
    for (const RankStepResult& rank : step.ranks) {
      const Sample sample = SampleOf(rank, kind);
      most.us = std::max(most.us, sample.us);
      most.logical_bytes = std::max(most.logical_bytes, sample.logical_bytes);
      most.wire_bytes = std::max(most.wire_bytes, sample.wire_bytes);
      most.rail_bytes = std::max(most.rail_bytes, sample.rail_bytes);
      figures.wrong += sample.wrong;
    }
    figures.us.push_back(most.us);
    samples.push_back(most);
  }
  const auto median = [&](auto&& value) {
    std::vector<double> values;
    for (const Sample& sample : samples) values.push_back(static_cast<double>(value(sample)));
    return Summarize(std::move(values)).median;
  };
  figures.logical_gbps = median([](const Sample& s) { return Gbps(s.logical_bytes, s.us); });
  figures.wire_gbps = median([](const Sample& s) { return Gbps(s.wire_bytes, s.us); });
  figures.rail_gbps = median([](const Sample& s) { return Gbps(s.rail_bytes, s.us); });
  figures.wire_bytes = median([](const Sample& s) { return s.wire_bytes; });
  figures.rail_bytes = median([](const Sample& s) { return s.rail_bytes; });
  return figures;
}

// Returns calls of the contender, or of ExpertParallel's choice. Sets what was chosen.
absl::StatusOr<Calls> CallsOf(Domain& domain, Contender* contender, RunSpec& options) {
  EpConfig& config = options.workload.config;
  if (contender == nullptr) return MakeCalls(domain, options);
  if (!domain.several_nodes()) {
    Calls calls;
    OCTET_ASSIGN_OR_RETURN(calls.ep, contender->Create(config, {}));
    config.strategy = calls.ep->config().strategy;  // not left open
    return calls;
  }
  OCTET_ASSIGN_OR_RETURN(config.strategy, ParseEnum<Strategy>("strategy", contender->name()));
  return MakeCalls(domain, options);
}

// Times the rails with what the last step has sent over them, there and back.
absl::StatusOr<std::vector<RailFigures>> RailsOf(Domain& domain, const RunSpec& options,
                                                 const EpConfig& config, const Workload& workload) {
  const RailRowCounts there = CountRailRows(config, options.nodes, options.rail_rows,
                                            workload.inputs(), domain.node_index());
  const RailRowCounts back = {.sent = there.received, .received = there.sent};
  const size_t record = RailRecordBytes(config, domain.num_nodes());
  const RailTiming timing = {
      .iters = options.iters, .align = options.align, .graph = options.graph};
  OCTET_ASSIGN_OR_RETURN(
      RailFigures dispatch,
      MeasureRail(domain, there, static_cast<int64_t>(config.dispatch_row_bytes() + record),
                  timing));
  OCTET_ASSIGN_OR_RETURN(
      RailFigures combine,
      MeasureRail(domain, back, static_cast<int64_t>(config.dtype_row_bytes()), timing));
  return std::vector<RailFigures>{std::move(dispatch), std::move(combine)};
}

}  // namespace

std::array<PerfFigures, kNumPerfKinds> PerfFiguresOf(const std::vector<StepResult>& fused,
                                                     const std::vector<StepResult>& calls) {
  return {FiguresOf(calls, PerfKind::kDispatch), FiguresOf(calls, PerfKind::kCombine),
          FiguresOf(fused, PerfKind::kBoth)};
}

absl::StatusOr<PerfRow> MeasurePerf(Domain& domain, Contender* contender, const RunSpec& options,
                                    int check_steps, const Progress& progress) {
  PerfRow row;
  row.options = options;
  OCTET_ASSIGN_OR_RETURN(const Calls calls, CallsOf(domain, contender, row.options));
  row.config = calls.ep->config();
  row.strategy =
      std::string(contender != nullptr ? contender->name() : EnumName(row.config.strategy));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<StepRunner> runner,
                         StepRunner::Create(domain, *calls.ep, row.options));
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
                        form, {.done = check ? options.iters - checked : 0, .all = options.iters});
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
  OCTET_ASSIGN_OR_RETURN(const std::vector<StepResult> by_calls,
                         timed("step by calls", StepForm::kCalls));
  row.kinds = PerfFiguresOf(fused, by_calls);
  if (domain.several_nodes()) {
    OCTET_ASSIGN_OR_RETURN(row.rails, RailsOf(domain, row.options, row.config, *workload));
  }
  row.verified_steps = 2 * checked;
  row.first_difference = FirstDifferenceOf(fused);
  if (row.first_difference.empty()) row.first_difference = FirstDifferenceOf(by_calls);
  return row;
}

}  // namespace octet
