#include "tools/commands/gemm_command.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/gemm_rows.h"
#include "tools/contenders/gemm_contender.h"
#include "tools/measure/gemm/gemm_run.h"
#include "tools/support/atomic_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/text_table.h"

ABSL_DECLARE_FLAG(std::string, dtype);
ABSL_DECLARE_FLAG(std::string, scales);
ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_DECLARE_FLAG(int32_t, iters);
ABSL_DECLARE_FLAG(int32_t, warmup);
ABSL_DECLARE_FLAG(int32_t, blocks);
ABSL_DECLARE_FLAG(std::string, dump);
ABSL_DECLARE_FLAG(std::string, json);

ABSL_FLAG(int32_t, n, 4096, "N: rows of each expert's weights, columns of the product");
ABSL_FLAG(int32_t, k, 7168, "K: columns of the weights and of the rows");
ABSL_FLAG(
    std::string, epilogue, "none",
    "none, or a list of swiglu, bias, row_scale and float32, the output's type; perf: none or\n"
    "swiglu, which is its default");
ABSL_FLAG(std::string, tiles, "auto",
          "tile shapes, a list: auto, all, wide, medium, few64, few32, few16");
ABSL_FLAG(int32_t, samples, 256,
          "checked parts of the output, of one row and eight columns each, against float64");

namespace octet {
namespace {

constexpr absl::string_view kName = "gemm";
constexpr auto kFlags = JoinFlags(
    kGemmRowsFlags,
    std::to_array<absl::string_view>({"n", "k", "dtype", "scales", "epilogue", "tiles", "blocks",
                                      "iters", "warmup", "samples", "seed", "dump", "json"}));

// This command takes more values of these flags than others do.
constexpr auto kFlagHelp = std::to_array<FlagHelp>({
    {"dtype", "bf16",
     "fp16, bf16, fp8: the type of the operands; fp8 ones have scales, and give bf16"},
});

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, status);
  return exit_code;
}

absl::Status ParseEpilogue(const std::string& text, GemmOptions& options) {
  if (text == "none") return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (part == "swiglu") {
      options.activation = GemmActivation::kSwiGlu;
    } else if (part == "bias") {
      options.bias = true;
    } else if (part == "row_scale") {
      options.row_scale = true;
    } else if (part == "float32") {
      options.output = GemmOutput::kFloat32;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--epilogue has '", part,
                       "', which is not one of swiglu, bias, row_scale, float32, none"));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseTiles(const std::string& text, GemmOptions& options) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (part == "auto") {
      options.tiles.emplace_back();
    } else if (part == "all") {
      options.tiles.insert(options.tiles.end(),
                           {GemmTiles::kWide, GemmTiles::kMedium, GemmTiles::kFew64,
                            GemmTiles::kFew32, GemmTiles::kFew16});
    } else {
      const absl::StatusOr<GemmTiles> tiles = ParseEnum<GemmTiles>("tiles", part);
      if (!tiles.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--tiles: ", tiles.status().message(), ", auto, all"));
      }
      options.tiles.emplace_back(*tiles);
    }
  }
  return absl::OkStatus();
}

absl::Status ParseType(const CommandLine& line, GemmOptions& options) {
  const std::string text = absl::GetFlag(FLAGS_dtype);
  if (text == "fp8") {
    options.format = GemmFormat::kFp8;
    OCTET_ASSIGN_OR_RETURN(options.scale_format,
                           ParseEnum<ScaleFormat>("scales", absl::GetFlag(FLAGS_scales)));
    return absl::OkStatus();
  }
  const absl::StatusOr<DType> dtype = ParseEnum<DType>("dtype", text);
  if (!dtype.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", dtype.status().message(), ", fp8"));
  }
  if (line.Given("scales")) {
    return absl::InvalidArgumentError("--scales goes with --dtype=fp8 only");
  }
  options.dtype = *dtype;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GemmOptions> ParseGemmOptions(const CommandLine& line) {
  GemmOptions options;
  OCTET_ASSIGN_OR_RETURN(options.rows, ParseGemmRows(line));
  options.n = absl::GetFlag(FLAGS_n);
  options.k = absl::GetFlag(FLAGS_k);
  OCTET_RETURN_IF_ERROR(ParseType(line, options));
  OCTET_RETURN_IF_ERROR(ParseEpilogue(absl::GetFlag(FLAGS_epilogue), options));
  OCTET_RETURN_IF_ERROR(ParseTiles(absl::GetFlag(FLAGS_tiles), options));
  options.blocks = absl::GetFlag(FLAGS_blocks);
  options.iters = absl::GetFlag(FLAGS_iters);
  options.warmup = absl::GetFlag(FLAGS_warmup);
  options.samples = absl::GetFlag(FLAGS_samples);
  if (options.iters < 1 || options.warmup < 0 || options.samples < 0) {
    return absl::InvalidArgumentError(
        "--iters must be at least 1, and --warmup and --samples at least 0");
  }
  options.seed = static_cast<uint32_t>(absl::GetFlag(FLAGS_seed));
  options.dump = absl::GetFlag(FLAGS_dump);
  if (const std::string json = absl::GetFlag(FLAGS_json); !json.empty()) {
    OCTET_RETURN_IF_ERROR(CheckCanWrite(json));
  }
  return options;
}

namespace {

std::string CellOf(std::optional<double> value, double unit) {
  return value.has_value() ? absl::StrFormat("%.4g", *value / unit) : "-";
}

std::string Table(const GemmOptions& options, const GemmReport& report) {
  const GroupedGemmConfig config = options.Config();
  std::string text = Comment(absl::StrCat(
      "octet gemm on ", report.gpu, ": ", config.experts, " experts, ",
      options.Flops() > 0 ? config.max_rows : 0, " rows, N ", config.n, ", K ", config.k, ", ",
      options.operand_name(), ", epilogue ", absl::GetFlag(FLAGS_epilogue)));
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

std::string Json(const GemmOptions& options, const GemmReport& report) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["gpu"] = report.gpu;
  json["rows"] = options.rows;
  json["n"] = options.n;
  json["k"] = options.k;
  json["dtype"] = std::string(options.operand_name());
  json["epilogue"] = absl::GetFlag(FLAGS_epilogue);
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

int Run(const CommandLine& line) {
  const absl::StatusOr<GemmOptions> options = ParseGemmOptions(line);
  if (!options.ok()) return Fail(kExitUsage, options.status());
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  const absl::StatusOr<GemmReport> report =
      MeasureGemm(*options, MakeGemmContenders(topology->platform));
  if (!report.ok()) return Fail(ExitCodeOf(report.status()), report.status());
  absl::PrintF("%s", Table(*options, *report));
  std::fflush(stdout);
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    const absl::Status status = WriteFileAtomically(path, {Json(*options, *report)});
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
  return {
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
      .flags = kFlags,
      .run = Run,
      .flag_help = kFlagHelp,
  };
}

}  // namespace octet
