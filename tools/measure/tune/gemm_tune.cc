#include "tools/measure/tune/gemm_tune.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/grouped_gemm.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_name.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr int kPairs = 10;  // of series; a strategy's tuning compares single steps

// Returns the medians of the tile shapes, in their order.
absl::StatusOr<std::vector<double>> Medians(const GemmOptions& options) {
  OCTET_ASSIGN_OR_RETURN(const GemmReport report, MeasureGemm(options, {}));
  std::vector<double> medians;
  for (const GemmMeasurement& measured : report.measurements) {
    if (measured.wrong > 0) {
      return absl::DataLossError(absl::StrCat("wrong results: ", measured.first_wrong));
    }
    medians.push_back(measured.us.median);
  }
  return medians;
}

// Compares the tuned tile shape with the built-in one; the two take turns to be first.
absl::StatusOr<TuneComparison> Compare(GemmOptions options, GemmTiles built_in, GemmTiles tuned) {
  options.seed += 1;
  options.samples = 0;  // both were checked
  options.tiles.clear();
  for (int pair = 0; pair < kPairs; ++pair) {
    const bool tuned_first = pair % 2 == 0;
    options.tiles.emplace_back(tuned_first ? tuned : built_in);
    options.tiles.emplace_back(tuned_first ? built_in : tuned);
  }
  OCTET_ASSIGN_OR_RETURN(const std::vector<double> medians, Medians(options));
  std::vector<double> default_us;
  std::vector<double> tuned_us;
  for (size_t i = 0; i < medians.size(); ++i) {
    (options.tiles[i] == tuned ? tuned_us : default_us).push_back(medians[i]);
  }
  return CompareTuned(default_us, tuned_us);
}

}  // namespace

absl::StatusOr<GemmTuneResult> TuneGemm(const GemmOptions& options) {
  if (options.Flops() == 0) {
    return absl::InvalidArgumentError("no expert has rows: there is nothing to measure");
  }
  GemmOptions measured = options;
  measured.use_measured_tuning = false;
  measured.dump.clear();
  measured.tiles.clear();
  const absl::Span<const EnumEntry<GemmTiles>> all = EnumTable(GemmTiles{});
  for (const EnumEntry<GemmTiles>& entry : all) measured.tiles.emplace_back(entry.value);
  OCTET_ASSIGN_OR_RETURN(const std::vector<double> medians, Medians(measured));
  GemmTuneResult result;
  for (size_t i = 0; i < medians.size(); ++i) {
    result.trials.push_back({.tiles = all[i].value, .us = medians[i]});
  }
  // MeasureGemm has left its GPU current.
  const GroupedGemmConfig config = measured.Config();
  OCTET_ASSIGN_OR_RETURN(const std::string gpu, CurrentGpuName());
  result.key = GemmTuningKeyOf(gpu, config);
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> gemm, GroupedGemm::Create(config));
  result.built_in = gemm->tiles();
  result.tuned =
      std::min_element(result.trials.begin(), result.trials.end(),
                       [](const GemmTrial& a, const GemmTrial& b) { return a.us < b.us; })
          ->tiles;
  if (result.tuned == result.built_in) return result;
  OCTET_ASSIGN_OR_RETURN(result.comparison, Compare(measured, result.built_in, result.tuned));
  return result;
}

std::string GemmTuneTable(const GemmTuneResult& result) {
  const TextTable table({{"tiles", "", 10}, {"time", "(us)", 12}, {"built-in", "(%)", 14}});
  const auto built_in =
      std::find_if(result.trials.begin(), result.trials.end(),
                   [&](const GemmTrial& trial) { return trial.tiles == result.built_in; });
  std::string text = table.Head();
  for (const GemmTrial& trial : result.trials) {
    text += table.Row({std::string(EnumName(trial.tiles)), absl::StrFormat("%.1f", trial.us),
                       built_in == result.trials.end() || built_in->us == 0
                           ? "-"
                           : absl::StrFormat("%.1f", trial.us / built_in->us * 100)});
  }
  return text;
}

std::string GemmVerdict(const GemmTuneResult& result) {
  const TuneComparison& comparison = result.comparison;
  if (comparison.pairs == 0) {
    return Comment(
        absl::StrCat("nothing is faster than the built-in choice, ", EnumName(result.built_in)));
  }
  return Comment(
      absl::StrFormat("%s takes %.1f us, the built-in choice %s %.1f us\n"
                      "  (medians; faster in %d of %d pairs): %s",
                      EnumName(result.tuned), comparison.tuned_us, EnumName(result.built_in),
                      comparison.default_us, comparison.won, comparison.pairs,
                      comparison.faster ? "taken" : "not beyond noise, the built-in choice stays"));
}

std::string ProductText(const GemmOptions& options) {
  std::string text =
      absl::StrCat(options.rows.size(), " experts, ",
                   std::accumulate(options.rows.begin(), options.rows.end(), int64_t{0}),
                   " rows, N ", options.n, ", K ", options.k, ", ", options.operand_name(),
                   ", activation ", EnumName(options.activation));
  if (options.bias) text += ", bias";
  if (options.row_scale) text += ", row_scale";
  return text;
}

GemmTuningEntry EntryOf(const GemmTuneResult& result, const GemmOptions& options) {
  const TuneComparison& comparison = result.comparison;
  return {
      .key = result.key,
      .tiles = result.tuned,
      .note = absl::StrFormat("%s: %.1f us, %s %.1f us; faster in %d of %d pairs",
                              ProductText(options), comparison.tuned_us, EnumName(result.built_in),
                              comparison.default_us, comparison.won, comparison.pairs)};
}

}  // namespace octet
