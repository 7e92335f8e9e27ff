#include "tools/measure/step/run.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ep/ep_calls.h"
#include "octet/expert_parallel.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"
#include "tools/measure/step/dump.h"
#include "tools/measure/step/step_series.h"
#include "tools/measure/trace/traced_run.h"

namespace octet {
namespace {

// The first traced step warms caches and clocks; the second is kept.
constexpr int kTracedSteps = 2;

absl::Status Trace(Node& node, const RunSpec& options, StepSeries& series, RunResult& result) {
  OCTET_ASSIGN_OR_RETURN(const TracedSteps traced,
                         TracedSteps::Create(node, result.config, options));
  for (int i = 0; i < kTracedSteps; ++i) {
    OCTET_ASSIGN_OR_RETURN(std::vector<StepResult> steps,
                           series.Run(*traced.runner, "traced step", 1, StepForm::kFused));
    result.traced.push_back(std::move(steps[0]));
  }
  OCTET_ASSIGN_OR_RETURN(const std::vector<TraceSlice> slices, traced.collector->Collect());
  result.trace_events_dropped = traced.collector->num_dropped();
  return TracedSteps::Write(node, slices, traced.ep->calls().trace_tags(), options.trace);
}

// Returns the statistics of a value over the steps.
Statistics Over(const std::vector<StepResult>& steps,
                const std::function<double(const StepResult&)>& value) {
  std::vector<double> values;
  for (const StepResult& step : steps) values.push_back(value(step));
  return Summarize(std::move(values));
}

SummaryLine SummarizeRank(const RunResult& result, size_t r) {
  const auto mean = [&](const std::function<double(const RankStepResult&)>& value) {
    return Over(result.steps, [&](const StepResult& s) { return value(s.ranks[r]); }).mean;
  };
  SummaryLine line;
  line.num_tokens = mean([](const RankStepResult& rank) { return rank.num_tokens; });
  line.rows_sent =
      mean([](const RankStepResult& rank) { return static_cast<double>(rank.rows_sent); });
  line.rows_received =
      mean([](const RankStepResult& rank) { return static_cast<double>(rank.rows_received); });
  line.rail_rows =
      mean([](const RankStepResult& rank) { return static_cast<double>(rank.rail_rows); });
  line.all_us = Over(result.steps, [r](const StepResult& s) { return s.ranks[r].all_us; });
  line.logical_gbps = Over(result.steps, [r](const StepResult& s) {
                        return Gbps(s.ranks[r].logical_bytes, s.ranks[r].all_us);
                      }).median;
  line.wire_gbps = Over(result.steps, [r](const StepResult& s) {
                     return Gbps(s.ranks[r].wire_bytes, s.ranks[r].all_us);
                   }).median;
  line.rail_gbps = Over(result.steps, [r](const StepResult& s) {
                     return Gbps(s.ranks[r].rail_bytes, s.ranks[r].all_us);
                   }).median;
  for (size_t call = 0; call < kNumCalls; ++call) {
    line.call_us[call] = Over(result.by_phases, [&](const StepResult& s) {
                           return s.ranks[r].call_us[call];
                         }).median;
  }
  for (size_t phase = 0; phase < kNumPhases; ++phase) {
    line.phase_us[phase] = Over(result.by_phases, [&](const StepResult& s) {
                             return s.ranks[r].phase_us[phase];
                           }).median;
  }
  for (const std::vector<StepResult>* steps :
       {&result.warmup, &result.steps, &result.by_phases, &result.traced}) {
    for (const StepResult& step : *steps) line.verification.Add(step.ranks[r].verification);
  }
  return line;
}

// Sets everything of all ranks but the verification.
void SummarizeAll(const RunResult& result, SummaryLine& total) {
  // Returns the greatest value of any rank in each step.
  const auto greatest = [&](const std::vector<StepResult>& steps, auto&& value) {
    return Over(steps, [&](const StepResult& step) {
      double most = 0;
      for (const RankStepResult& rank : step.ranks) {
        most = std::max(most, static_cast<double>(value(rank, step)));
      }
      return most;
    });
  };
  // Returns the mean over steps of the sum over all ranks.
  const auto mean_sum = [&](auto&& value) {
    return Over(result.steps,
                [&](const StepResult& step) {
                  int64_t sum = 0;
                  for (const RankStepResult& rank : step.ranks) sum += value(rank);
                  return static_cast<double>(sum);
                })
        .mean;
  };
  total.num_tokens = mean_sum([](const RankStepResult& rank) { return rank.num_tokens; });
  total.rows_sent = mean_sum([](const RankStepResult& rank) { return rank.rows_sent; });
  total.rows_received = mean_sum([](const RankStepResult& rank) { return rank.rows_received; });
  total.rail_rows = mean_sum([](const RankStepResult& rank) { return rank.rail_rows; });
  total.all_us = Over(result.steps, [](const StepResult& step) { return step.all_us; });
  total.logical_gbps =
      greatest(result.steps, [](const RankStepResult& rank, const StepResult& step) {
        return Gbps(rank.logical_bytes, step.all_us);
      }).median;
  total.wire_gbps = greatest(result.steps, [](const RankStepResult& rank, const StepResult& step) {
                      return Gbps(rank.wire_bytes, step.all_us);
                    }).median;
  total.rail_gbps = greatest(result.steps, [](const RankStepResult& rank, const StepResult& step) {
                      return Gbps(rank.rail_bytes, step.all_us);
                    }).median;
  for (size_t call = 0; call < kNumCalls; ++call) {
    total.call_us[call] =
        greatest(result.by_phases, [call](const RankStepResult& rank, const StepResult&) {
          return rank.call_us[call];
        }).median;
  }
  for (size_t phase = 0; phase < kNumPhases; ++phase) {
    total.phase_us[phase] =
        greatest(result.by_phases, [phase](const RankStepResult& rank, const StepResult&) {
          return rank.phase_us[phase];
        }).median;
  }
}

}  // namespace

absl::StatusOr<RunResult> ExecuteRun(Domain& domain, const RunSpec& options,
                                     const Progress& progress) {
  RunResult result;
  result.options = options;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options.workload));
  StepSeries series(*workload, progress);
  {
    OCTET_ASSIGN_OR_RETURN(const Calls calls, MakeCalls(domain, result.options));
    result.config = calls.ep->config();
    RunSpec chosen = result.options;
    chosen.workload.config = result.config;
    OCTET_ASSIGN_OR_RETURN(const HeapSize heap_size, HeapBytesOf(chosen));
    result.heap_bytes = heap_size.total();
    OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<StepRunner> runner,
                           StepRunner::Create(domain, *calls.ep, result.options));
    OCTET_ASSIGN_OR_RETURN(result.warmup,
                           series.Run(*runner, "warm-up step", options.warmup, StepForm::kFused));
    OCTET_RETURN_IF_ERROR(Heat(*runner, result.warmup));
    OCTET_ASSIGN_OR_RETURN(result.steps,
                           series.Run(*runner, "timed step", options.iters, StepForm::kFused));
    OCTET_RETURN_IF_ERROR(Heat(*runner, result.warmup));
    const StepForm parts = domain.several_nodes() ? StepForm::kCalls : StepForm::kPhases;
    OCTET_ASSIGN_OR_RETURN(
        result.by_phases,
        series.Run(*runner, domain.several_nodes() ? "step by calls" : "step by phases",
                   options.iters, parts));
    if (!options.dump.empty()) {
      OCTET_ASSIGN_OR_RETURN(const std::vector<RankOutput> outputs, runner->Download(*workload));
      OCTET_RETURN_IF_ERROR(WriteDump(domain, options.dump,
                                      {.topology = domain.node().topology(),
                                       .options = result.options,
                                       .config = result.config,
                                       .workload = *workload,
                                       .outputs = outputs}));
    }
  }
  if (!options.trace.empty()) OCTET_RETURN_IF_ERROR(Trace(domain.node(), options, series, result));
  return result;
}

RunSummary Summarize(const RunResult& result) {
  RunSummary summary;
  const size_t num_ranks = result.steps.front().ranks.size();
  for (size_t r = 0; r < num_ranks; ++r) {
    summary.ranks.push_back(SummarizeRank(result, r));
    summary.total.verification.Add(summary.ranks.back().verification);
  }
  SummarizeAll(result, summary.total);
  summary.wall_us = Over(result.steps, [](const StepResult& step) { return step.wall_us; });
  return summary;
}

std::string FirstDifference(const RunResult& result) {
  return Summarize(result).total.verification.first;
}

}  // namespace octet
