#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/topology.h"
#include "tools/commands/commands.h"
#include "tools/commands/gemm_flags.h"
#include "tools/commands/run_flags.h"
#include "tools/contenders/gemm_contender.h"
#include "tools/measure/gemm/gemm_run.h"
#include "tools/support/atomic_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "gemm";
struct ProductFlags {
  GemmFlags gemm;
  RunSpec run;  // what a step has as well
};

void AddGemmFlags(CommandLine& line, ProductFlags& flags) {
  AddGemmRowsFlags(line, flags.gemm, flags.run);
  AddGemmDtypeFlag(line, flags.gemm, flags.run);
  AddGemmWeightsFlag(line, flags.gemm);
  AddFlags(line, flags.run, {"scales"});
  AddProductFlags(line, flags.gemm);
  AddTilesFlag(line, flags.gemm);
  line.Add("iters", flags.run.iters, "timed products of each tile shape");
  line.Add("warmup", flags.run.warmup, "products before the timed ones");
  line.Add("dump", flags.run.dump, "folder for the operands and the last output");
  AddFlags(line, flags.run, {"blocks", "seed", "json"});
}

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, status);
  return exit_code;
}

std::string CellOf(std::optional<double> value, double unit) {
  return value.has_value() ? absl::StrFormat("%.4g", *value / unit) : "-";
}

std::string Table(const ProductFlags& flags, const GemmOptions& options, const GemmReport& report) {
  const GroupedGemmConfig config = options.Config();
  std::string text = Comment(
      absl::StrCat("octet gemm on ", report.gpu, ": ", config.experts, " experts, ",
                   options.Flops() > 0 ? config.max_rows : 0, " rows, N ", config.n, ", K ",
                   config.k, ", ", options.operand_name(), ", epilogue ", flags.gemm.epilogue));
  for (const LeftOutContender& contender : report.left_out) {
    text += Comment(absl::StrCat(contender.name, " is left out: ", contender.reason));
  }
  constexpr double kPercent = 0.01;
  const TextTable table({{"product", "", 15},
                         {"median", "us", 10},
                         {"min", "us", 10},
                         {"p99", "us", 10},
                         {"compute", "TFLOP/s", 10},
                         {"of peak", "%", 8},
                         {"clock", "MHz", 7},
                         {"weights", "TB/s", 10},
                         {"checked", "", 9},
                         {"#wrong", "", 8}});
  text += table.Head();
  for (const GemmMeasurement& m : report.measurements) {
    text += table.Row(
        {m.chosen ? absl::StrCat(m.name, "*") : m.name, absl::StrFormat("%.1f", m.us.median),
         absl::StrFormat("%.1f", m.us.min), absl::StrFormat("%.1f", m.us.p99),
         absl::StrFormat("%.4g", m.tflops), CellOf(m.of_peak, kPercent), CellOf(m.mhz, 1),
         absl::StrFormat("%.4g", m.weights_tbps), absl::StrCat(m.checked), absl::StrCat(m.wrong)});
  }
  text += Comment("*: the library's choice");
  return text;
}

nlohmann::ordered_json OrNull(std::optional<double> value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

std::string JsonOf(const ProductFlags& flags, const GemmOptions& options,
                   const GemmReport& report) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["gpu"] = report.gpu;
  json["rows"] = options.rows;
  json["n"] = options.n;
  json["k"] = options.k;
  json["dtype"] = std::string(options.operand_name());
  json["epilogue"] = flags.gemm.epilogue;
  json["left_out"] = nlohmann::ordered_json::array();
  for (const LeftOutContender& contender : report.left_out) {
    json["left_out"].push_back({{"name", contender.name}, {"reason", contender.reason}});
  }
  json["measurements"] = nlohmann::ordered_json::array();
  for (const GemmMeasurement& m : report.measurements) {
    nlohmann::ordered_json row;
    row["name"] = m.name;
    row["chosen"] = m.chosen;
    row["median_us"] = m.us.median;
    row["min_us"] = m.us.min;
    row["p99_us"] = m.us.p99;
    row["tflops"] = m.tflops;
    row["of_peak"] = OrNull(m.of_peak);
    row["clock_mhz"] = OrNull(m.mhz);
    row["weights_tbps"] = m.weights_tbps;
    row["checked"] = m.checked;
    row["wrong"] = m.wrong;
    json["measurements"].push_back(row);
  }
  return json.dump(2) + "\n";
}

int Run(CommandLine& line, ProductFlags& flags) {
  const absl::StatusOr<Topology> topology = DiscoverGpus(line);
  const absl::StatusOr<GemmOptions> options = ResolveGemm(line, flags.gemm, flags.run);
  if (!options.ok()) return Fail(kExitUsage, options.status());
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  const absl::StatusOr<GemmReport> report =
      MeasureGemm(*options, MakeGemmContenders(topology->platform));
  if (!report.ok()) return Fail(ExitCodeOf(report.status()), report.status());
  absl::PrintF("%s", Table(flags, *options, *report));
  std::fflush(stdout);
  if (const std::string& path = flags.run.json; !path.empty()) {
    const absl::Status status = WriteFileAtomically(path, {JsonOf(flags, *options, *report)});
    if (!status.ok()) return Fail(kExitUsage, status);
  }
  for (const GemmMeasurement& measured : report->measurements) {
    if (measured.wrong == 0) continue;
    return Fail(kExitWrongResults,
                absl::DataLossError(absl::StrCat("wrong results: ", measured.first_wrong)));
  }
  return kExitOk;
}

}  // namespace

Command GemmCommand() {
  const Command command = {
      .name = kName,
      .summary = "grouped matrix products: the experts of one GPU, measured and checked",
      .details =
          "Multiplies random rows by the weights of their experts on the first GPU, times it with\n"
          "the L2 flushed, and checks a sample of the output against float64. For 16-bit operands\n"
          "and without an epilogue, the vendor's libraries stand beside it where they are\n"
          "installed: cuBLAS with one call for each expert, on one stream and on several, and "
          "with\n"
          "one for all; hipBLASLt with one for each expert.\n"
          "Exit codes: 0 ok, 1 wrong results, 2 usage, 3 device error.",
  };
  return WithFlags<ProductFlags>(command, AddGemmFlags, Run);
}

}  // namespace octet
