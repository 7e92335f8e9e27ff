#include "bench/step_benchmarks.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/measured.h"
#include "bench/step_workloads.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/step/perf.h"
#include "tools/measure/step/step_runner.h"
#include "tools/measure/step/step_series.h"
#include "tools/support/progress.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

constexpr int kWarmupSteps = 2;

// One contender with one workload, ready to step.
class Steps {
 public:
  static absl::StatusOr<std::unique_ptr<Steps>> Create(Node& node, Contender& contender,
                                                       const RunSpec& options) {
    auto steps = std::make_unique<Steps>();
    steps->check_ = options.check;
    OCTET_ASSIGN_OR_RETURN(steps->ep_, contender.Create(options.workload.config, {}));
    OCTET_ASSIGN_OR_RETURN(steps->runner_, StepRunner::Create(node, *steps->ep_, options));
    OCTET_ASSIGN_OR_RETURN(steps->workload_, Workload::Create(options.workload));
    steps->series_ = std::make_unique<StepSeries>(*steps->workload_, steps->progress_);
    return steps;
  }

  // Runs verified steps, then load, before the first step of `kind`.
  absl::Status WarmUp(PerfKind kind) {
    runner_->set_check(check_);
    OCTET_ASSIGN_OR_RETURN(const std::vector<StepResult> warmup,
                           series_->Run(*runner_, "warm-up step", kWarmupSteps, FormOf(kind)));
    for (const StepResult& step : warmup) {
      for (const RankStepResult& rank : step.ranks) {
        if (!rank.verification.bitwise) return absl::DataLossError(rank.verification.first);
      }
    }
    runner_->set_check(false);
    return Heat(*runner_, warmup);
  }

  absl::StatusOr<StepResult> Run(PerfKind kind) {
    OCTET_ASSIGN_OR_RETURN(std::vector<StepResult> steps,
                           series_->Run(*runner_, "timed step", 1, FormOf(kind)));
    return std::move(steps.front());
  }

  const EpConfig& config() const { return ep_->config(); }

 private:
  static StepForm FormOf(PerfKind kind) {
    return kind == PerfKind::kBoth ? StepForm::kFused : StepForm::kCalls;
  }

  bool check_ = true;
  std::unique_ptr<ExpertParallel> ep_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<Workload> workload_;
  const Progress progress_;
  std::unique_ptr<StepSeries> series_;
};

PerfFigures FiguresOf(const StepResult& step, PerfKind kind) {
  const bool both = kind == PerfKind::kBoth;
  return PerfFiguresOf(
      both ? std::vector{step} : std::vector<StepResult>(),
      both ? std::vector<StepResult>() : std::vector{step})[static_cast<size_t>(kind)];
}

// The benchmarks of one contender and workload run one after another and share Steps: the first
// creates them, and a benchmark of another contender or workload destroys them.
class StepBenchmarks {
 public:
  explicit StepBenchmarks(Session& session) : session_(session) {}

  // Runs one step and returns its microseconds.
  absl::StatusOr<double> Run(benchmark::State& state, Contender& contender, const RunSpec& options,
                             PerfKind kind) {
    const std::string pair = absl::StrCat(contender.name(), "/", options.name);
    const std::string name = absl::StrCat(kPerfKindNames[static_cast<size_t>(kind)], "/", pair);
    if (current_pair_ != pair) {
      current_pair_.clear();
      steps_.reset();  // its memory is needed
      OCTET_ASSIGN_OR_RETURN(steps_, Steps::Create(session_.node(), contender, options));
      current_pair_ = pair;
    }
    if (current_ != name) {
      current_.clear();
      OCTET_RETURN_IF_ERROR(steps_->WarmUp(kind));
      current_ = name;
    }
    OCTET_ASSIGN_OR_RETURN(const StepResult step, steps_->Run(kind));
    return Count(state, step, kind);
  }

 private:
  double Count(benchmark::State& state, const StepResult& step, PerfKind kind) {
    const PerfFigures figures = FiguresOf(step, kind);
    int64_t rows = 0;
    for (const RankStepResult& rank : step.ranks) rows = std::max(rows, rank.rows_received);
    state.counters["logical_GBps"] = figures.logical_gbps;
    session_.CountWire(state, figures.wire_gbps);
    state.counters["rows"] = static_cast<double>(rows);
    const int blocks = steps_->config().tuning.blocks;  // other contenders have none
    if (blocks > 0) state.counters["blocks"] = blocks;
    if (kind == PerfKind::kBoth) state.counters["host_us"] = step.wall_us;
    return figures.us.front();
  }

  Session& session_;
  std::string current_pair_;
  std::string current_;
  std::unique_ptr<Steps> steps_;
};

}  // namespace

void RegisterStepBenchmarks(Session& session) {
  const auto benchmarks = std::make_shared<StepBenchmarks>(session);
  const bool small = session.emulated() && !session.all_shapes();
  for (const RunSpec& options :
       small ? SmallStepWorkloads(session.options()) : StepWorkloads(session.options())) {
    for (Contender* const contender : session.contenders()) {
      if (!contender->Check(options.workload.config).ok()) continue;
      for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
        RegisterMeasured(
            session, absl::StrCat(kPerfKindNames[kind], "/", contender->name(), "/", options.name),
            [benchmarks, contender, options, kind](benchmark::State& state) {
              return benchmarks->Run(state, *contender, options, static_cast<PerfKind>(kind));
            });
      }
    }
  }
}

}  // namespace octet
