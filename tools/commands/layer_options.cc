#include "tools/commands/layer_options.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "octet/enum_names.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/run_options.h"
#include "tools/support/atomic_file.h"
#include "tools/workload/model_shapes.h"

ABSL_DECLARE_FLAG(int32_t, ranks);
ABSL_DECLARE_FLAG(int32_t, experts);
ABSL_DECLARE_FLAG(int32_t, topk);
ABSL_DECLARE_FLAG(int32_t, hidden);
ABSL_DECLARE_FLAG(int32_t, intermediate);
ABSL_DECLARE_FLAG(std::string, tokens);
ABSL_DECLARE_FLAG(std::string, dtype);
ABSL_DECLARE_FLAG(std::string, strategy);
ABSL_DECLARE_FLAG(std::string, fusion);
ABSL_DECLARE_FLAG(int32_t, max_blocks);
ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_DECLARE_FLAG(int32_t, iters);
ABSL_DECLARE_FLAG(int32_t, warmup);
ABSL_DECLARE_FLAG(bool, check);
ABSL_DECLARE_FLAG(bool, graph);
ABSL_DECLARE_FLAG(int32_t, timeout_ms);
ABSL_DECLARE_FLAG(std::string, output);
ABSL_DECLARE_FLAG(std::string, dump);
ABSL_DECLARE_FLAG(std::string, json);

ABSL_FLAG(std::string, model, "",
          "a model folder, with config.json and *.safetensors; empty: random weights");
ABSL_FLAG(int32_t, layer, 0, "the layer of that model, from 0");
ABSL_FLAG(std::string, input, "",
          "x.npy: [T, H], which is split over the ranks in order, or [ranks, T, H]; float16,\n"
          "float32, or uint16, which means bfloat16; empty: random tokens");
ABSL_FLAG(std::string, family, "qwen3_moe",
          absl::StrCat(octet::EnumNames<octet::ModelFamily>(),
                       ": without --model, whose router\n"
                       "and, on GPUs, whose shape the layer has where no flag says otherwise"));
ABSL_FLAG(std::string, shared, "auto",
          absl::StrCat(octet::EnumNames<octet::SharedExperts>(),
                       ": shared experts after combine, or beside\n"
                       "dispatch and combine"));
ABSL_FLAG(int32_t, link_blocks, 0,
          "the most blocks of dispatch and combine, for products beside them; 0: --max_blocks");
ABSL_FLAG(int32_t, shared_experts, 0, "shared experts, each with --intermediate columns");
ABSL_FLAG(std::string, weights, "",
          "fp8, bf16 or fp16: the type of the experts' weights, which are converted to it: fp8 or\n"
          "that of the rows; empty: the folder's, otherwise that of the rows");

ABSL_FLAG(std::vector<std::string>, contenders, {},
          "measured beside the layer, a list of EXCHANGE+PRODUCTS: nccl or memcpy_peer, as in\n"
          "perf, and cublas or cublas_streams, as in gemm; they take the router's results");

namespace octet {
namespace {

constexpr absl::string_view kFp8Weights = "fp8";

constexpr auto kLayerFlags = std::to_array<absl::string_view>(
    {"model",      "layer",          "input",      "output",         "family",
     "experts",    "topk",           "hidden",     "intermediate",   "shared_experts",
     "tokens",     "ranks",          "dtype",      "weights",        "strategy",
     "fusion",     "max_blocks",     "shared",     "link_blocks",    "graph",
     "iters",      "warmup",         "check",      "seed",           "timeout_ms",
     "dump",       "json",           "contenders", "rail_transport", "rail_rows",
     "rail_chunk", "intranode_order"});

// What these flags, which other commands have, too, mean to this one.
constexpr auto kFlagHelp = std::to_array<FlagHelp>({
    {"output", "", "y.npy to write: float32, of the dimensions of --input, or [ranks, T, H]"},
    {"experts", "",
     "E: experts over all ranks, a multiple of them; without this flag, as without the next\n"
     "four: as the family's well-known model has it, on emulated GPUs a small number"},
    {"topk", "", "K: experts that a token chooses"},
    {"hidden", "", "H: elements of a token's row, a multiple of 8"},
    {"intermediate", "", "I: elements between the two products of an expert, a multiple of 8"},
    {"shared_experts", "", "shared experts, each with --intermediate elements; 0: none"},
    {"tokens", "16", "T: random tokens of every rank"},
    {"strategy", "auto",
     "auto, direct, high_throughput, low_latency: how tokens are sent; auto: the fastest for\n"
     "such calls"},
    {"fusion", "auto",
     "auto, none, tiles, serial: how the kernels of dispatch, products and combine are put\n"
     "together"},
    {"graph", "false", "times the call in a graph as well, captured once and then replayed"},
    {"iters", "20", "timed calls; 0: none"},
    {"check", "true",
     "compare every token's experts and weights, and logits and y of some tokens, with the\n"
     "reference"},
    {"seed", "4", "seed of random weights and tokens"},
    {"dump", "",
     "folder for x, logits, topk_idx, topk_weights and y of all tokens, as .npy files\n"
     "(docs/formats.md), in place of older ones"},
    {"rail_rows", "auto",
     "auto, blocks, counted: several nodes: how many rows cross between them, for every rank\n"
     "as many as the largest number of tokens, or those that there are, which the host waits\n"
     "to know; auto: blocks with low_latency"},
});

absl::Status ParseShape(const CommandLine& line, bool emulated, LayerOptions& options) {
  for (const absl::string_view flag :
       {"family", "experts", "topk", "hidden", "intermediate", "shared_experts", "dtype"}) {
    if (options.model.empty() || !line.Given(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " is for random weights; --model has its own"));
  }
  if (!options.model.empty()) return absl::OkStatus();
  if (line.Given("layer")) {
    return absl::InvalidArgumentError("--layer is one of a model's; it needs --model");
  }
  OCTET_ASSIGN_OR_RETURN(options.family,
                         ParseEnum<ModelFamily>("--family", absl::GetFlag(FLAGS_family)));
  MoeLayerConfig& config = options.run.config;
  config = emulated ? SmallShape(options.family) : ModelShape(options.family);
  if (line.Given("experts")) config.num_experts = absl::GetFlag(FLAGS_experts);
  if (line.Given("topk")) config.topk = absl::GetFlag(FLAGS_topk);
  if (line.Given("hidden")) config.hidden = absl::GetFlag(FLAGS_hidden);
  if (line.Given("intermediate")) config.intermediate = absl::GetFlag(FLAGS_intermediate);
  if (line.Given("shared_experts")) {
    const int64_t shared = int64_t{absl::GetFlag(FLAGS_shared_experts)} * config.intermediate;
    if (shared < 0 || shared > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError("--shared_experts is out of range");
    }
    config.shared_intermediate = static_cast<int>(shared);
  }
  config.shared_gate = options.family == ModelFamily::kQwen2Moe && config.shared_intermediate > 0;
  config.router = ModelRouter(options.family, config.num_experts);
  const absl::StatusOr<DType> dtype = ParseEnum<DType>("--dtype", absl::GetFlag(FLAGS_dtype));
  if (!dtype.ok()) return dtype.status();
  config.dtype = *dtype;
  return absl::OkStatus();
}

absl::Status ParseKernels(const CommandLine& line, LayerOptions& options) {
  MoeLayerConfig& config = options.run.config;
  OCTET_ASSIGN_OR_RETURN(config.strategy,
                         ParseEnum<Strategy>("--strategy", absl::GetFlag(FLAGS_strategy)));
  if (line.Given("fusion")) {  // its default is perf's
    OCTET_ASSIGN_OR_RETURN(config.fusion,
                           ParseEnum<Fusion>("--fusion", absl::GetFlag(FLAGS_fusion)));
  }
  config.max_blocks = absl::GetFlag(FLAGS_max_blocks);
  OCTET_ASSIGN_OR_RETURN(config.shared_experts,
                         ParseEnum<SharedExperts>("--shared", absl::GetFlag(FLAGS_shared)));
  config.link_blocks = absl::GetFlag(FLAGS_link_blocks);
  options.weights = absl::GetFlag(FLAGS_weights);
  if (options.weights.empty() || options.weights == kFp8Weights) return absl::OkStatus();
  return ParseEnum<DType>("--weights", options.weights).ok()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("--weights '", options.weights,
                                                       "' is not one of ", EnumNames<DType>(), ", ",
                                                       kFp8Weights));
}

absl::Status ParseTokens(const CommandLine& line, LayerOptions& options) {
  constexpr int kDefault = 16;
  options.tokens = kDefault;
  if (!line.Given("tokens")) return absl::OkStatus();
  if (!options.input.empty()) {
    return absl::InvalidArgumentError("--tokens is for random tokens; --input has its own");
  }
  if (!absl::SimpleAtoi(absl::GetFlag(FLAGS_tokens), &options.tokens) || options.tokens < 0 ||
      options.tokens > kMaxTokensPerRank) {
    return absl::InvalidArgumentError(absl::StrCat("--tokens=", absl::GetFlag(FLAGS_tokens),
                                                   " is not a number from 0 to ",
                                                   kMaxTokensPerRank));
  }
  return absl::OkStatus();
}

absl::Status ParseSteps(LayerOptions& options) {
  options.run.iters = absl::GetFlag(FLAGS_iters);
  options.run.warmup = absl::GetFlag(FLAGS_warmup);
  options.run.check = absl::GetFlag(FLAGS_check);
  options.run.graph = absl::GetFlag(FLAGS_graph);
  options.seed = absl::GetFlag(FLAGS_seed);
  if (options.run.iters < 0 || options.run.warmup < 0) {
    return absl::InvalidArgumentError("--iters and --warmup must be at least 0");
  }
  for (const std::string& name : absl::GetFlag(FLAGS_contenders)) {
    OCTET_ASSIGN_OR_RETURN(options.run.contenders.emplace_back(), ParseLayerLibraries(name));
  }
  const int timeout = absl::GetFlag(FLAGS_timeout_ms);
  if (timeout < 0) return absl::InvalidArgumentError("--timeout_ms must be at least 0");
  options.timeout = absl::Milliseconds(timeout);
  return absl::OkStatus();
}

absl::Status ParseNodes(const CommandLine& line, LayerOptions& options) {
  OCTET_ASSIGN_OR_RETURN(const NodesChoices choices, ParseNodesChoices(line));
  options.transport = choices.transport;
  options.run.rails = {.rows = choices.rows,
                       .chunk_tokens = choices.chunk_tokens,
                       .intranode_order = choices.intranode_order};
  if (!line.launch().several()) return absl::OkStatus();
  if (!options.run.contenders.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--contenders is for one node, and ", line.launch().num_processes, " have been started"));
  }
  if (options.run.graph) {
    OCTET_RETURN_IF_ERROR(CheckGraphOverNodes(choices.rows, options.run.config.strategy));
  }
  const Fusion fusion = options.run.config.fusion;
  if (fusion == Fusion::kAuto || fusion == Fusion::kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--fusion is ", EnumName(fusion),
                                                 "; over several nodes it must be auto or none"));
}

}  // namespace

absl::Status ChooseWeights(absl::string_view weights, MoeLayerConfig& config) {
  if (weights.empty()) return absl::OkStatus();
  config.weights = weights == kFp8Weights ? GemmFormat::kFp8 : GemmFormat::kSame;
  if (config.weights == GemmFormat::kFp8 || weights == EnumName(config.dtype)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--weights is ", weights, ", and the layer's rows are ", EnumName(config.dtype),
                   "; it must be ", EnumName(config.dtype), " or ", kFp8Weights));
}

absl::Span<const absl::string_view> LayerFlags() { return kLayerFlags; }
absl::Span<const FlagHelp> LayerFlagHelp() { return kFlagHelp; }

absl::StatusOr<LayerOptions> ParseLayerOptions(const CommandLine& line, int num_gpus,
                                               bool emulated) {
  LayerOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  options.layer = absl::GetFlag(FLAGS_layer);
  options.input = absl::GetFlag(FLAGS_input);
  options.num_ranks = absl::GetFlag(FLAGS_ranks);
  if (options.num_ranks == 0) options.num_ranks = num_gpus;
  if (options.num_ranks < 1) return absl::InvalidArgumentError("--ranks must be at least 0");
  OCTET_RETURN_IF_ERROR(ParseShape(line, emulated, options));
  OCTET_RETURN_IF_ERROR(ParseKernels(line, options));
  OCTET_RETURN_IF_ERROR(ParseTokens(line, options));
  OCTET_RETURN_IF_ERROR(ParseSteps(options));
  OCTET_RETURN_IF_ERROR(ParseNodes(line, options));
  options.output = absl::GetFlag(FLAGS_output);
  options.dump = absl::GetFlag(FLAGS_dump);
  options.json = absl::GetFlag(FLAGS_json);
  if (!line.launch().first()) return options;  // the first process writes
  for (const std::string& file : {options.output, options.json}) {
    if (!file.empty()) OCTET_RETURN_IF_ERROR(CheckCanWrite(file));
  }
  if (!options.dump.empty()) OCTET_RETURN_IF_ERROR(MakeFolder(options.dump));
  return options;
}

}  // namespace octet
