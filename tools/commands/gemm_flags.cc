#include "tools/commands/gemm_flags.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "octet/ep_config.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/run_flags.h"
#include "tools/support/atomic_file.h"
#include "tools/workload/expert_rows.h"
#include "tools/workload/model_shapes.h"

namespace octet {
namespace {

constexpr int kMostExperts = 256;  // of one GPU: GroupedGemmConfig::experts
constexpr absl::string_view kRouting = "routing";
constexpr absl::string_view kFp8 = "fp8";
constexpr auto kRoutingFlags =
    std::to_array<absl::string_view>({"ranks", "topk", "tokens", "max_tokens", "routing", "drop"});

// Returns a number of digits alone, or `more` if it is larger; nothing for any other text.
std::optional<int64_t> ParseNumber(absl::string_view text, int64_t more) {
  if (text.empty() || text.find_first_not_of("0123456789") != absl::string_view::npos) {
    return std::nullopt;
  }
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? std::min(number, more) : more;
}

// Appends the experts that one part of a list names, "N" or "LxN".
absl::Status AppendRows(absl::string_view part, std::vector<int32_t>& rows) {
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  const auto wrong = [part](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--rows has '", part, "', ", what));
  };
  const std::vector<absl::string_view> numbers = absl::StrSplit(part, 'x');
  const std::optional<int64_t> each = ParseNumber(numbers.back(), kMostRows + 1);
  const std::optional<int64_t> experts =
      numbers.size() == 1 ? 1 : ParseNumber(numbers.front(), kMostExperts + 1);
  if (numbers.size() > 2 || !each.has_value() || !experts.has_value()) {
    return wrong("which is neither N nor LxN");
  }
  if (*experts < 1 || *experts > kMostExperts) {
    return wrong(absl::StrCat("and a GPU has 1 to ", kMostExperts, " experts"));
  }
  if (*each > kMostRows) {
    return wrong(absl::StrCat("and an expert has at most ", kMostRows, " rows"));
  }
  rows.insert(rows.end(), static_cast<size_t>(*experts), static_cast<int32_t>(*each));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> RowsOfList(const CommandLine& line, const std::string& text,
                                                int experts) {
  OCTET_RETURN_IF_ERROR(line.Refuse(kRoutingFlags, "goes with --rows=routing only"));
  std::vector<int32_t> rows;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    OCTET_RETURN_IF_ERROR(AppendRows(part, rows));
  }
  if (!line.Given("experts")) return rows;
  OCTET_RETURN_IF_ERROR(CheckRange("experts", experts, 1, kMostExperts));
  if (int32_t each = 0; absl::SimpleAtoi(text, &each)) {
    rows.assign(static_cast<size_t>(experts), each);
  }
  if (rows.size() != static_cast<size_t>(experts)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--experts=", experts, " does not agree with --rows, which lists ", rows.size()));
  }
  return rows;
}

absl::StatusOr<std::vector<int32_t>> RowsOfRouting(const CommandLine& line, RunSpec run) {
  constexpr int kLeastHidden = 8;  // choices do not depend on the rows
  if (run.nodes.ranks_per_node == 0) {
    return absl::InvalidArgumentError(
        "--rows=routing needs --ranks, the number of ranks that share the experts");
  }
  OCTET_RETURN_IF_ERROR(ResolveRanks(line, kMaxRanks, run));
  WorkloadSpec& spec = run.workload;
  OCTET_RETURN_IF_ERROR(ResolveChoices(line, spec));
  spec.config.hidden = kLeastHidden;
  if (!line.Given("max_tokens") && !spec.tokens.empty()) {
    spec.config.max_tokens_per_rank =
        std::max(1, *std::max_element(spec.tokens.begin(), spec.tokens.end()));
  }
  OCTET_RETURN_IF_ERROR(Validate(spec.config, spec.num_ranks));
  return ExpertRows(spec, 0);
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

absl::Status ParseTiles(const std::vector<std::string>& names, GemmOptions& options) {
  for (const std::string& part : names) {
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

}  // namespace

void AddGemmDtypeFlag(CommandLine& line, GemmFlags& gemm, RunSpec& run) {
  DType& dtype = run.workload.config.dtype;
  line.Add(
      "dtype",
      {.set = [&](absl::string_view flag, absl::string_view text) -> absl::Status {
         gemm.fp8 = text == kFp8;
         if (gemm.fp8) return absl::OkStatus();
         const absl::Status status = ValueOf(dtype).set(flag, text);
         return status.ok()
                    ? status
                    : absl::InvalidArgumentError(absl::StrCat(status.message(), ", ", kFp8));
       },
       .text = [&] { return std::string(gemm.fp8 ? kFp8 : EnumName(dtype)); }},
      "fp16, bf16: the type of the elements of rows and weights; fp8, of a product's operands\n"
      "alone: they have scales, and give bf16");
}

void AddGemmWeightsFlag(CommandLine& line, GemmFlags& gemm) {
  line.Add("weights", ValueOf(gemm.weights, {GemmFormat::kSame, GemmFormat::kMxfp4}),
           "same: weights are of --dtype; mxfp4: 4-bit floats, with an exponent for each 32\n"
           "columns of K, with rows of --dtype bf16 or fp8");
}

void AddGemmRowsFlags(CommandLine& line, GemmFlags& gemm, RunSpec& run) {
  line.Add(
      "rows", gemm.rows,
      "rows of each expert: a number, for each of --experts; a list such as 512,0,8x64, where\n"
      "LxN stands for L experts of N rows; routing: what rank 0 of --ranks receives");
  AddFlags(line, run, {"experts", "ranks", "topk", "tokens", "max_tokens", "routing", "drop"});
}

void AddProductFlags(CommandLine& line, GemmFlags& gemm) {
  line.Add("n", gemm.n, "N: rows of each expert's weights, columns of the product",
           absl::StrCat(2 * kSmallSizes.intermediate));
  line.Add("k", gemm.k, "K: columns of the weights and of the rows",
           absl::StrCat(kSmallSizes.hidden));
  line.Add("epilogue", gemm.epilogue,
           "none, or a list of swiglu, bias, row_scale and float32, the output's type;\n"
           "--operation=dispatch_gemm: none or swiglu, which is its default");
  line.Add("samples", gemm.samples,
           "checked parts of the output, of one row and eight columns each, against float64");
}

void AddTilesFlag(CommandLine& line, GemmFlags& gemm) {
  line.Add("tiles", gemm.tiles,
           "tile shapes, a list: auto, all, wide, medium, few64, few32, few16");
}

absl::Status RefuseFp8(const GemmFlags& gemm) {
  return gemm.fp8 ? ParseEnum<DType>("--dtype", kFp8).status() : absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ResolveGemmRows(const CommandLine& line, const GemmFlags& gemm,
                                                     const RunSpec& run) {
  OCTET_ASSIGN_OR_RETURN(std::vector<int32_t> rows,
                         gemm.rows == kRouting
                             ? RowsOfRouting(line, run)
                             : RowsOfList(line, gemm.rows, run.workload.config.num_experts));
  if (rows.size() <= kMostExperts) return rows;
  return absl::InvalidArgumentError(
      absl::StrCat(rows.size(), " experts are more than the ", kMostExperts, " of a GPU at most"));
}

absl::StatusOr<GemmOptions> ResolveGemm(const CommandLine& line, const GemmFlags& gemm,
                                        const RunSpec& run) {
  const EpConfig& config = run.workload.config;
  GemmOptions options = {
      .rows = {},
      .n = gemm.n,
      .k = gemm.k,
      .dtype = config.dtype,
      .format = gemm.fp8 && gemm.weights == GemmFormat::kSame ? GemmFormat::kFp8 : gemm.weights,
      .fp8_rows = gemm.fp8 && gemm.weights == GemmFormat::kMxfp4,
      .scale_format = config.scale_format,
      .tiles = {},
      .blocks = config.tuning.blocks,
      .iters = run.iters,
      .warmup = run.warmup,
      .samples = gemm.samples,
      .seed = static_cast<uint32_t>(run.workload.seed),
      .dump = run.dump};
  OCTET_ASSIGN_OR_RETURN(options.rows, ResolveGemmRows(line, gemm, run));
  if (!gemm.fp8) OCTET_RETURN_IF_ERROR(line.Refuse({"scales"}, "goes with --dtype=fp8 only"));
  OCTET_RETURN_IF_ERROR(ParseEpilogue(gemm.epilogue, options));
  OCTET_RETURN_IF_ERROR(ParseTiles(gemm.tiles, options));
  if (options.iters < 1 || options.warmup < 0 || options.samples < 0) {
    return absl::InvalidArgumentError(
        "--iters must be at least 1, and --warmup and --samples at least 0");
  }
  if (!run.json.empty()) OCTET_RETURN_IF_ERROR(CheckCanWrite(run.json));
  return options;
}

}  // namespace octet
