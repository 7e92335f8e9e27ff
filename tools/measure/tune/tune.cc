#include "tools/measure/tune/tune.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/ep/ep_plan.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/step/step_runner.h"
#include "tools/measure/step/step_series.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

// The ratio of times from which a change is worthwhile, and the share of pairs that it must win.
constexpr double kFaster = 0.99;
constexpr double kPairsToWin = 0.75;

// The search repeats all axes, since the gain of one may help another.
constexpr int kMostPasses = 3;

// The fewest pairs of the final comparison.
constexpr int kFewestPairs = 20;

constexpr std::array<double, 6> kBlocksPerUnit = {0.25, 0.5, 1, 1.5, 2, 4};
constexpr std::array<double, 5> kSendShares = {0.25, 0.375, 0.5, 0.625, 0.75};  // blocks, waves
constexpr std::array<int, 4> kRowParts = {1, 2, 4, 8};

int Share(int blocks, double share) {
  return std::clamp(static_cast<int>(std::lround(blocks * share)), 1, std::max(1, blocks - 1));
}

// Return `tuning` with that many blocks or waves, the same share of which send.
Tuning WithBlocks(Tuning tuning, int blocks) {
  const double share = static_cast<double>(tuning.send_blocks) / tuning.blocks;
  tuning.blocks = std::max(2, blocks);
  if (tuning.send_blocks > 0) tuning.send_blocks = Share(tuning.blocks, share);
  return tuning;
}
Tuning WithWaves(Tuning tuning, int waves) {
  for (int Tuning::* const send : {&Tuning::send_waves, &Tuning::combine_send_waves}) {
    const double share = static_cast<double>(tuning.*send) / tuning.waves_per_block;
    if (tuning.*send > 0) tuning.*send = Share(waves, share);
  }
  tuning.waves_per_block = waves;
  return tuning;
}

std::vector<Tuning> OtherBlocks(const Tuning& from, const TuneLimits& limits) {
  std::vector<Tuning> others;
  for (const double per_unit : kBlocksPerUnit) {
    others.push_back(WithBlocks(from, static_cast<int>(limits.compute_units * per_unit)));
  }
  return others;
}

// Returns tunings with other waves: with the same blocks, and with the same threads in all.
std::vector<Tuning> OtherWaves(const Tuning& from, const TuneLimits& limits) {
  std::vector<Tuning> others;
  for (int waves = limits.most_waves; waves >= std::max(1, limits.most_waves / 8); waves /= 2) {
    others.push_back(WithWaves(from, waves));
    others.push_back(WithBlocks(others.back(), from.blocks * from.waves_per_block / waves));
  }
  return others;
}

// Returns tunings with other shares of `part` in `all`.
template <int Tuning::* part, int Tuning::* all>
std::vector<Tuning> OtherShares(const Tuning& from, const TuneLimits& /*limits*/) {
  std::vector<Tuning> others;
  for (const double share : kSendShares) {
    others.push_back(from);
    others.back().*part = Share(from.*all, share);
  }
  return others;
}

std::vector<Tuning> OtherRowParts(const Tuning& from, const TuneLimits& /*limits*/) {
  std::vector<Tuning> others;
  for (const int parts : kRowParts) {
    others.push_back(from);
    others.back().row_parts = parts;
  }
  return others;
}

std::vector<Tuning> OtherRowCopies(const Tuning& from, const TuneLimits& /*limits*/) {
  std::vector<Tuning> others;
  for (const RowCopies copies : {RowCopies::kVectors, RowCopies::kBulk}) {
    others.push_back(from);
    others.back().row_copies = copies;
  }
  return others;
}

using Variations = std::vector<Tuning> (*)(const Tuning&, const TuneLimits&);

// The variations of a field.
struct FieldAxis {
  int Tuning::* number;  // nullptr: row_copies, as in TuningField
  Variations axis;
};
constexpr std::array<FieldAxis, 7> kFieldAxes = {{
    {&Tuning::blocks, OtherBlocks},
    {&Tuning::send_blocks, OtherShares<&Tuning::send_blocks, &Tuning::blocks>},
    {&Tuning::waves_per_block, OtherWaves},
    {&Tuning::send_waves, OtherShares<&Tuning::send_waves, &Tuning::waves_per_block>},
    {&Tuning::combine_send_waves,
     OtherShares<&Tuning::combine_send_waves, &Tuning::waves_per_block>},
    {&Tuning::row_parts, OtherRowParts},
    {nullptr, OtherRowCopies},
}};

// Returns the axes of the fields that the strategy uses, in their order.
std::vector<Variations> AxesOf(Strategy strategy) {
  std::vector<Variations> axes;
  for (const TuningField& field : TuningFieldsOf(strategy)) {
    for (const FieldAxis& each : kFieldAxes) {
      if (each.number == field.number) axes.push_back(each.axis);
    }
  }
  return axes;
}

std::string TuningText(Strategy strategy, const Tuning& tuning) {
  return absl::StrJoin(TuningFieldsOf(strategy), ", ",
                       [&](std::string* out, const TuningField& field) {
                         absl::StrAppend(out, field.name, " ", field.Text(tuning));
                       });
}

// Returns the note of an entry: how it was measured.
std::string Note(const TuneComparison& comparison, const RunSpec& options,
                 absl::string_view other) {
  const WorkloadSpec& spec = options.workload;
  return absl::StrFormat(
      "T %d H %d K %d E %d %s: dispatch, expert and combine %.1f us, %s %.1f us; faster in %d of "
      "%d pairs",
      spec.config.max_tokens_per_rank, spec.config.hidden, spec.config.topk,
      spec.config.num_experts, EnumName(spec.config.dtype), comparison.tuned_us, other,
      comparison.default_us, comparison.won, comparison.pairs);
}

// Formats a cell; columns are as wide as their names, and at least eight.
std::string Cell(const TuningField& field, absl::string_view text) {
  return absl::StrFormat("%*s", std::max(8, static_cast<int>(field.name.size()) + 2), text);
}

// A strategy with one tuning, ready to be measured.
struct Tuned {
  std::unique_ptr<ExpertParallel> ep;
  std::unique_ptr<StepRunner> runner;

  // A `tuning` of zeros leaves the choice to the strategy.
  static absl::StatusOr<Tuned> Create(Node& node, const RunSpec& options, const Tuning& tuning) {
    EpConfig config = options.workload.config;
    config.tuning = tuning;
    Tuned tuned;
    OCTET_ASSIGN_OR_RETURN(tuned.ep,
                           ExpertParallel::Create(node, config, {.use_measured_tuning = false}));
    OCTET_ASSIGN_OR_RETURN(tuned.runner, StepRunner::Create(node, *tuned.ep, options));
    return tuned;
  }

  // Runs a verified step.
  absl::Status Check(const Workload& workload) const {
    runner->set_check(true);
    OCTET_ASSIGN_OR_RETURN(const StepResult step, runner->Run(workload, StepForm::kFused));
    runner->set_check(false);
    for (const RankStepResult& rank : step.ranks) {
      if (rank.verification.bitwise) continue;
      return absl::DataLossError(absl::StrCat(
          "wrong results with ", TuningText(ep->config().strategy, ep->config().tuning), ": ",
          rank.verification.first));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> TimeStep(const Workload& workload) const {
    OCTET_ASSIGN_OR_RETURN(const StepResult step, runner->Run(workload, StepForm::kFused));
    return step.all_us;
  }

  absl::Status WarmUp(const Workload& workload, int steps) const {
    runner->set_check(false);
    std::vector<StepResult> warmup;
    for (int i = 0; i < steps; ++i) {
      OCTET_ASSIGN_OR_RETURN(StepResult step, runner->Run(workload, StepForm::kFused));
      warmup.push_back(std::move(step));
    }
    return Heat(*runner, warmup);
  }
};

// A strategy with a tuning; zeros leave the choice to the strategy.
struct Entrant {
  Strategy strategy;
  Tuning tuning;
};

absl::StatusOr<Tuned> Enter(Node& node, const RunSpec& options, const Entrant& entrant) {
  RunSpec named = options;
  named.workload.config.strategy = entrant.strategy;
  return Tuned::Create(node, named, entrant.tuning);
}

struct Match {
  Entrant tuned;
  Entrant by_default;  // the choice without `tuned`
};

// Compares the entrants of `match`, both in memory at once, on fresh inputs.
absl::StatusOr<TuneComparison> Compare(Node& node, const RunSpec& options, const Match& match,
                                       Workload& workload, const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(const Tuned ours, Enter(node, options, match.tuned));
  OCTET_ASSIGN_OR_RETURN(const Tuned built_in, Enter(node, options, match.by_default));
  OCTET_RETURN_IF_ERROR(ours.Check(workload));
  OCTET_RETURN_IF_ERROR(built_in.Check(workload));
  OCTET_RETURN_IF_ERROR(built_in.WarmUp(workload, options.warmup));
  OCTET_RETURN_IF_ERROR(ours.WarmUp(workload, options.warmup));
  std::vector<double> default_us;
  std::vector<double> tuned_us;
  const int pairs = std::max(options.iters, kFewestPairs);
  for (int i = 0; i < pairs; ++i) {
    progress.Show("winner against the built-in choice", i + 1, pairs);
    workload.Generate(static_cast<uint32_t>(i + 1));
    // The two take turns to be first.
    for (int turn = 0; turn < 2; ++turn) {
      const bool ours_now = (i + turn) % 2 == 0;
      OCTET_ASSIGN_OR_RETURN(const double us, (ours_now ? ours : built_in).TimeStep(workload));
      (ours_now ? tuned_us : default_us).push_back(us);
    }
  }
  return CompareTuned(default_us, tuned_us);
}

}  // namespace

absl::StatusOr<std::vector<TuneTrial>> SearchTuning(const Tuning& start, const TuneLimits& limits,
                                                    MeasureTuning measure,
                                                    absl::FunctionRef<bool()> in_time,
                                                    ReportTrial report) {
  std::vector<TuneTrial> trials;
  const auto tried = [&](const Tuning& tuning) {
    return std::any_of(trials.begin(), trials.end(),
                       [&](const TuneTrial& trial) { return trial.tuning == tuning; });
  };
  const auto attempt = [&](const Tuning& tuning) -> absl::Status {
    const absl::StatusOr<double> us = measure(tuning);
    if (!us.ok() && !absl::IsInvalidArgument(us.status())) return us.status();
    trials.push_back({.tuning = tuning, .fits = us.ok(), .us = us.ok() ? *us : 0});
    report(trials.back());
    return absl::OkStatus();
  };
  OCTET_RETURN_IF_ERROR(attempt(start));
  if (!trials.front().fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("the built-in choice does not fit: ", TuningText(limits.strategy, start)));
  }
  TuneTrial best = trials.front();
  for (int pass = 0; pass < kMostPasses; ++pass) {
    const double before = best.us;
    for (const Variations axis : AxesOf(limits.strategy)) {
      const Tuning from = best.tuning;
      for (const Tuning& candidate : axis(from, limits)) {
        if (tried(candidate)) continue;
        if (!in_time()) return trials;
        OCTET_RETURN_IF_ERROR(attempt(candidate));
        const TuneTrial& trial = trials.back();
        if (trial.fits && trial.us < best.us * kFaster) best = trial;
      }
    }
    if (best.us >= before) break;
  }
  return trials;
}

const TuneTrial& Fastest(absl::Span<const TuneTrial> trials) {
  return *std::min_element(trials.begin(), trials.end(),
                           [](const TuneTrial& a, const TuneTrial& b) {
                             return a.fits != b.fits ? a.fits : a.us < b.us;
                           });
}

TuneComparison CompareTuned(const std::vector<double>& default_us,
                            const std::vector<double>& tuned_us) {
  TuneComparison comparison;
  comparison.default_us = Summarize(default_us).median;
  comparison.tuned_us = Summarize(tuned_us).median;
  comparison.pairs = static_cast<int>(std::min(default_us.size(), tuned_us.size()));
  for (size_t i = 0; i < static_cast<size_t>(comparison.pairs); ++i) {
    comparison.won += tuned_us[i] < default_us[i] ? 1 : 0;
  }
  comparison.faster = comparison.pairs > 0 &&
                      comparison.tuned_us <= comparison.default_us * kFaster &&
                      comparison.won >= kPairsToWin * comparison.pairs;
  return comparison;
}

absl::StatusOr<TuneResult> TuneShape(Node& node, const RunSpec& options, absl::Duration budget,
                                     ReportTrial report, const Progress& progress) {
  const absl::Time end = absl::Now() + budget;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options.workload));
  workload->Generate(0);
  TuneResult result;
  {
    OCTET_ASSIGN_OR_RETURN(const Tuned built_in, Tuned::Create(node, options, {}));
    const EpConfig& config = built_in.ep->config();
    result.built_in = config.tuning;
    result.key = TuningKeyOf(node.topology(), node.num_ranks(), config);
  }
  int candidates = 0;
  const auto measure = [&](const Tuning& tuning) -> absl::StatusOr<double> {
    ++candidates;
    OCTET_ASSIGN_OR_RETURN(const Tuned tuned, Tuned::Create(node, options, tuning));
    OCTET_RETURN_IF_ERROR(tuned.WarmUp(*workload, options.warmup));
    std::vector<double> us;
    for (int i = 0; i < options.iters; ++i) {
      progress.Show(absl::StrCat("candidate ", candidates), i + 1, options.iters);
      OCTET_ASSIGN_OR_RETURN(const double step_us, tuned.TimeStep(*workload));
      us.push_back(step_us);
    }
    return Summarize(std::move(us)).median;
  };
  const auto in_time = [&] {
    result.out_of_time = absl::Now() > end;
    return !result.out_of_time;
  };
  const GpuInfo& gpu = node.topology().gpus[0];
  // The built-in choice has the most waves that a block can have.
  const TuneLimits limits = {.strategy = result.key.strategy,
                             .compute_units = gpu.num_compute_units,
                             .most_waves = result.built_in.waves_per_block};
  OCTET_ASSIGN_OR_RETURN(result.trials,
                         SearchTuning(result.built_in, limits, measure, in_time, report));
  result.tuned = Fastest(result.trials).tuning;
  if (result.tuned == result.built_in) {
    result.comparison.default_us = result.comparison.tuned_us = result.trials.front().us;
    return result;
  }
  OCTET_ASSIGN_OR_RETURN(result.comparison, Compare(node, options,
                                                    {.tuned = {result.key.strategy, result.tuned},
                                                     .by_default = {result.key.strategy, {}}},
                                                    *workload, progress));
  return result;
}

absl::StatusOr<StrategyResult> CompareStrategies(Node& node, const RunSpec& options,
                                                 absl::Span<const TuneResult> results,
                                                 const Progress& progress) {
  StrategyResult best;
  best.key = TuningKeyOf(node.topology(), node.num_ranks(), options.workload.config);
  best.built_in = EpPlan::ByRules(options.workload.config, node.num_ranks()).strategy;
  const TuneResult* fastest = &results.front();
  const TuneResult* built_in = nullptr;
  for (const TuneResult& result : results) {
    if (result.best_us() < fastest->best_us()) fastest = &result;
    if (result.key.strategy == best.built_in) built_in = &result;
  }
  best.fastest = fastest->key.strategy;
  if (fastest == built_in || built_in == nullptr) return best;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options.workload));
  workload->Generate(0);
  OCTET_ASSIGN_OR_RETURN(best.comparison, Compare(node, options,
                                                  {.tuned = {best.fastest, fastest->best()},
                                                   .by_default = {best.built_in, built_in->best()}},
                                                  *workload, progress));
  return best;
}

std::string TuneHead(Strategy strategy) {
  std::string names;
  std::string units;
  for (const TuningField& field : TuningFieldsOf(strategy)) {
    absl::StrAppend(&names, Cell(field, field.name));
    absl::StrAppend(&units, Cell(field, ""));
  }
  absl::StrAppendFormat(&names, "%12s%14s\n", "time", "built-in");
  absl::StrAppendFormat(&units, "%12s%14s\n", "(us)", "(%)");
  names[0] = units[0] = '#';
  return names + units;
}

std::string TuneLine(Strategy strategy, const TuneTrial& trial, double built_in_us) {
  std::string line;
  for (const TuningField& field : TuningFieldsOf(strategy)) {
    absl::StrAppend(&line, Cell(field, field.Text(trial.tuning)));
  }
  std::string time = "-";
  std::string ratio = "does not fit";
  if (trial.fits) {
    time = absl::StrFormat("%.1f", trial.us);
    ratio = built_in_us > 0 ? absl::StrFormat("%.1f", trial.us / built_in_us * 100) : "-";
  }
  absl::StrAppendFormat(&line, "%12s%14s\n", time, ratio);
  return line;
}

std::string TuneVerdict(const TuneResult& result, int tokens) {
  std::string text = absl::StrFormat("%d tokens: ", tokens);
  const TuneComparison& comparison = result.comparison;
  if (comparison.pairs == 0) {
    absl::StrAppendFormat(&text, "nothing is faster than the built-in choice\n  (%s)",
                          TuningText(result.key.strategy, result.built_in));
  } else {
    absl::StrAppendFormat(
        &text,
        "(%s) takes %.1f us,\n  the built-in choice (%s) %.1f us\n"
        "  (medians; faster in %d of %d pairs): %s",
        TuningText(result.key.strategy, result.tuned), comparison.tuned_us,
        TuningText(result.key.strategy, result.built_in), comparison.default_us, comparison.won,
        comparison.pairs,
        comparison.faster ? "taken" : "not beyond noise, the built-in choice stays");
  }
  return Comment(absl::StrCat(text, result.out_of_time ? "; out of time" : ""));
}

std::string StrategyVerdict(const StrategyResult& result, int tokens) {
  const TuneComparison& comparison = result.comparison;
  if (comparison.pairs == 0) {
    return Comment(absl::StrFormat("%d tokens: auto stays %s, which is the fastest", tokens,
                                   EnumName(result.built_in)));
  }
  return Comment(absl::StrFormat(
      "%d tokens: %s takes %.1f us, %s, which auto is by itself, %.1f us\n"
      "  (medians; faster in %d of %d pairs): %s",
      tokens, EnumName(result.fastest), comparison.tuned_us, EnumName(result.built_in),
      comparison.default_us, comparison.won, comparison.pairs,
      comparison.faster ? "taken" : "not beyond noise, auto stays"));
}

TuningEntry EntryOf(const TuneResult& result, const RunSpec& options) {
  return {.key = result.key,
          .tuning = result.tuned,
          .note = Note(result.comparison, options, "built-in")};
}

TuningEntry EntryOf(const StrategyResult& result, const RunSpec& options) {
  return {.key = result.key,
          .chosen = result.fastest,
          .note = Note(result.comparison, options, EnumName(result.built_in))};
}

}  // namespace octet
