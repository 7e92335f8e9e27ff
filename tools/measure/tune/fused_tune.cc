#include "tools/measure/tune/fused_tune.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "runtime/base/status_macros.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

// A field of the tuning of one kernel for both.
struct Axis {
  absl::string_view name;
  absl::string_view unit;
  std::vector<std::function<void(FusedTuning&)>> values = {};  // each sets one to be tried
  std::function<std::string(const FusedTuning&)> text;         // what the table says
};

Axis Numbers(absl::string_view name, absl::string_view unit, int FusedTuning::* field,
             absl::Span<const int> values) {
  Axis axis = {
      .name = name, .unit = unit, .values = {}, .text = [field](const FusedTuning& tuning) {
        return absl::StrCat(tuning.*field);
      }};
  for (const int value : values) {
    axis.values.emplace_back([field, value](FusedTuning& tuning) { tuning.*field = value; });
  }
  return axis;
}

template <typename Enum>
Axis Names(absl::string_view name, std::optional<Enum> FusedTuning::* field) {
  Axis axis = {.name = name, .unit = "", .values = {}, .text = [field](const FusedTuning& tuning) {
                 return (tuning.*field).has_value() ? std::string(EnumName(*(tuning.*field))) : "-";
               }};
  for (const EnumEntry<Enum>& entry : EnumTable(Enum())) {
    const Enum value = entry.value;
    axis.values.emplace_back([field, value](FusedTuning& tuning) { tuning.*field = value; });
  }
  return axis;
}

const std::vector<Axis>& AxesOf(FusedCall call) {
  static const auto* const kDispatchGemm = new std::vector<Axis>{
      Numbers("send", "(%)", &FusedTuning::send_percent, {2, 6, 10, 15, 22, 32, 45}),
      Numbers("fill", "(%)", &FusedTuning::fill_percent, {2, 5, 8, 12, 20, 30}),
      Numbers("stages", "", &FusedTuning::stages, {1, 2}), Names("order", &FusedTuning::send_order),
      Names("waits", &FusedTuning::tile_waits)};
  static const auto* const kGemmCombine = new std::vector<Axis>{
      Numbers("combine", "(%)", &FusedTuning::combine_percent, {6, 12, 18, 25, 35}),
      Numbers("parts", "", &FusedTuning::row_parts, {1, 2, 4, 8})};
  return call == FusedCall::kDispatchGemm ? *kDispatchGemm : *kGemmCombine;
}

bool IsSame(const FusedChoice& a, const FusedChoice& b, FusedCall call) {
  if (a.fusion != b.fusion || a.tuning.tiles != b.tuning.tiles) return false;
  return std::all_of(AxesOf(call).begin(), AxesOf(call).end(),
                     [&](const Axis& axis) { return axis.text(a.tuning) == axis.text(b.tuning); });
}

// Whether a kernel divides its work as the axes say.
bool IsDivided(Fusion fusion) { return fusion == Fusion::kTiles || fusion == Fusion::kEpilogue; }

// The whole calls of one series of steps.
struct Rows {
  const FusedRow& none;
  absl::Span<const FusedRow> ways;  // in their order, but for those that were left out
};

class Search {
 public:
  Search(Node& node, const FusedRunOptions& options,
         absl::FunctionRef<void(const FusedTrial&)> report, const Progress& progress)
      : node_(node), options_(options), report_(report), progress_(progress) {
    options_.use_measured_tuning = false;
  }

  absl::StatusOr<FusedTuneResult> Run() {
    result_.tuned = {.fusion = Fusion::kNone};
    std::vector<FusedChoice> fusions = {{.fusion = Fusion::kTiles}};
    if (options_.operation == FusedCall::kGemmCombine) {
      fusions.push_back({.fusion = Fusion::kSerial});
      fusions.push_back({.fusion = Fusion::kEpilogue});
    }
    for (const FusedChoice& fusion : fusions) OCTET_RETURN_IF_ERROR(Improve(fusion));
    if (best_.fusion != Fusion::kNone) {
      OCTET_RETURN_IF_ERROR(Compare());
    }
    return std::move(result_);
  }

 private:
  // Measures `ways` in the same steps.
  absl::StatusOr<FusedReport> Measure(const std::vector<FusedChoice>& ways) {
    options_.ways.clear();
    for (const FusedChoice& way : ways) options_.ways.push_back({.choice = way});
    OCTET_ASSIGN_OR_RETURN(FusedReport report, MeasureFused(node_, options_, progress_));
    if (report.first_difference.empty()) return report;
    return absl::DataLossError(absl::StrCat("wrong results: ", report.first_difference));
  }
  static Rows RowsOf(const FusedReport& report) {
    constexpr size_t kParts = 2;
    return {report.rows[kParts], absl::MakeConstSpan(report.rows).subspan(kParts + 1)};
  }

  // Measures the ways, reports them and returns the fastest; nullopt if there is none.
  absl::StatusOr<std::optional<FusedTrial>> Fastest(const std::vector<FusedChoice>& ways) {
    OCTET_ASSIGN_OR_RETURN(const FusedReport report, Measure(ways));
    std::optional<FusedTrial> fastest;
    const double none_us = Summarize(RowsOf(report).none.us).median;
    for (const FusedRow& row : RowsOf(report).ways) {
      const FusedTrial trial = {row.choice, Summarize(row.us).median, none_us};
      result_.trials.push_back(trial);
      report_(trial);
      if (!fastest.has_value() || trial.us < fastest->us) fastest = trial;
    }
    return fastest;
  }

  // Replaces `best` by the fastest of the ways, which include it.
  absl::Status Vary(const std::vector<FusedChoice>& ways, FusedTrial& best) {
    OCTET_ASSIGN_OR_RETURN(const std::optional<FusedTrial> fastest, Fastest(ways));
    if (fastest.has_value()) best = *fastest;
    return absl::OkStatus();
  }

  // Starts with the built-in tuning of a fusion, and varies one field after the other.
  absl::Status Improve(const FusedChoice& start) {
    OCTET_ASSIGN_OR_RETURN(const std::optional<FusedTrial> first, Fastest({start}));
    if (!first.has_value()) return absl::OkStatus();  // the call cannot be made so
    FusedTrial best = *first;
    std::vector<FusedChoice> ways;
    for (const GemmTiles tiles : {GemmTiles::kWide, GemmTiles::kMedium}) {
      ways.push_back(best.choice);
      ways.back().tuning.tiles = tiles;
    }
    OCTET_RETURN_IF_ERROR(Vary(ways, best));
    if (IsDivided(start.fusion)) {
      for (const Axis& axis : AxesOf(options_.operation)) {
        ways = {best.choice};
        for (const auto& set : axis.values) {
          FusedChoice way = best.choice;
          set(way.tuning);
          if (!IsSame(way, ways.front(), options_.operation)) ways.push_back(way);
        }
        OCTET_RETURN_IF_ERROR(Vary(ways, best));
      }
    }
    const double share = best.us / best.none_us;
    if (share < best_share_) {
      best_share_ = share;
      best_ = best.choice;
    }
    return absl::OkStatus();
  }

  absl::Status Compare() {
    options_.run.workload.seed += 1;
    OCTET_ASSIGN_OR_RETURN(const FusedReport report, Measure({best_}));
    const Rows rows = RowsOf(report);
    if (rows.ways.empty()) return absl::OkStatus();
    result_.tuned = best_;
    result_.comparison = CompareTuned(rows.none.us, rows.ways.front().us);
    return absl::OkStatus();
  }

  Node& node_;
  FusedRunOptions options_;
  absl::FunctionRef<void(const FusedTrial&)> report_;
  const Progress& progress_;
  FusedTuneResult result_;
  FusedChoice best_ = {.fusion = Fusion::kNone};
  double best_share_ = std::numeric_limits<double>::infinity();  // of the time of separate kernels
};

TextTable TableOf(FusedCall call) {
  std::vector<TableColumn> columns = {{"fusion", "", 9}, {"tiles", "", 8}};
  for (const Axis& axis : AxesOf(call)) {
    columns.push_back({std::string(axis.name), std::string(axis.unit), 9});
  }
  columns.push_back({"time", "(us)", 10});
  columns.push_back({"of none", "(%)", 9});
  return TextTable(std::move(columns));
}

}  // namespace

absl::StatusOr<FusedTuneResult> TuneFused(Node& node, const FusedRunOptions& options,
                                          absl::FunctionRef<void(const FusedTrial&)> report,
                                          const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(FusedTuneResult result, Search(node, options, report, progress).Run());
  result.key = FusedTuningKeyOf(node.topology(), node.num_ranks(), options.operation,
                                {.ep = options.run.workload.config,
                                 .intermediate = options.intermediate,
                                 .activation = options.activation});
  return result;
}

std::string FusedTuneHead(FusedCall call) { return TableOf(call).Head(); }

std::string FusedTuneLine(FusedCall call, const FusedTrial& trial) {
  const FusedTuning& tuning = trial.choice.tuning;
  std::vector<std::string> cells = {
      std::string(EnumName(trial.choice.fusion)),
      tuning.tiles.has_value() ? std::string(EnumName(*tuning.tiles)) : "-"};
  const bool divided = IsDivided(trial.choice.fusion);
  for (const Axis& axis : AxesOf(call)) {
    cells.push_back(divided ? axis.text(tuning) : "-");
  }
  cells.push_back(absl::StrFormat("%.1f", trial.us));
  cells.push_back(trial.none_us > 0 ? absl::StrFormat("%.1f", trial.us / trial.none_us * 100)
                                    : "-");
  return TableOf(call).Row(cells);
}

std::string FusedVerdict(const FusedTuneResult& result) {
  const TuneComparison& comparison = result.comparison;
  if (comparison.pairs == 0) return Comment("such calls can be made by separate kernels alone");
  return Comment(absl::StrFormat(
      "%s takes %.1f us, separate kernels %.1f us\n"
      "  (medians; faster in %d of %d pairs): %s",
      EnumName(result.tuned.fusion), comparison.tuned_us, comparison.default_us, comparison.won,
      comparison.pairs, comparison.faster ? "taken" : "not beyond noise, separate kernels stay"));
}

FusedTuningEntry EntryOf(const FusedTuneResult& result, const FusedRunOptions& options) {
  const TuneComparison& comparison = result.comparison;
  const EpConfig& ep = options.run.workload.config;
  return {.key = result.key,
          .choice = result.tuned,
          .note = absl::StrFormat(
              "%d tokens, experts %d, topk %d, hidden %d, %s: %.1f us, none %.1f us; faster in %d "
              "of %d pairs",
              ep.max_tokens_per_rank, ep.num_experts, ep.topk, ep.hidden, EnumName(ep.dtype),
              comparison.tuned_us, comparison.default_us, comparison.won, comparison.pairs)};
}

}  // namespace octet
