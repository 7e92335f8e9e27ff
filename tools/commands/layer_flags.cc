#include "tools/commands/layer_flags.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "octet/enum_names.h"
#include "octet/types/weight_format.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/run_flags.h"
#include "tools/support/atomic_file.h"
#include "tools/workload/model_shapes.h"

namespace octet {
namespace {

// Returns the names of the formats with scales that products take.
std::string ScaledFormats(absl::string_view separator) {
  std::vector<absl::string_view> names;
  for (const WeightFormatInfo& info : WeightFormats()) {
    if (info.word != GemmFormat::kSame) names.push_back(info.name);
  }
  return absl::StrJoin(names, separator);
}

absl::StatusOr<int> ReadTokens(absl::string_view flag, absl::string_view text) {
  int tokens = 0;
  if (absl::SimpleAtoi(text, &tokens) && tokens >= 0 && tokens <= kMaxTokensPerRank) return tokens;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", text, " is not a number from 0 to ", kMaxTokensPerRank));
}

void AddShapeFlags(CommandLine& line, LayerFlags& flags) {
  line.Add("model", flags.model,
           "a model folder, with config.json and *.safetensors; empty: random weights");
  line.Add("layer", flags.layer, "the layer of that model, from 0");
  line.Add(
      "all", flags.all,
      "runs and checks every layer of that model that has experts, one line for each, without\n"
      "times");
  line.Add("input", flags.input,
           "x.npy: [T, H], which is split over the ranks in order, or [ranks, T, H]; float16,\n"
           "float32, or uint16, which means bfloat16; empty: random tokens");
  line.Add("output", flags.output,
           "y.npy to write: float32, of the dimensions of --input, or [ranks, T, H]");
  line.Add("family", flags.family,
           absl::StrCat(EnumNames<ModelFamily>(),
                        ": without --model, whose router\n"
                        "and, on GPUs, whose shape the layer has where no flag says otherwise"));
  line.Add("experts", flags.experts,
           "E: experts over all ranks, without --placement a multiple of them; without this flag,\n"
           "as without the next four: as the family's well-known model has it, on emulated GPUs a "
           "small number");
  line.Add("topk", flags.topk, "K: experts that a token chooses");
  line.Add("hidden", flags.hidden, "H: elements of a token's row, a multiple of 8");
  line.Add("intermediate", flags.intermediate,
           "I: elements between the two products of an expert, a multiple of 8");
  line.Add("shared_experts", flags.shared_experts,
           "shared experts, each with --intermediate elements; 0: none");
  line.Add("tokens", Bound(flags.tokens, ReadTokens, [](int of) { return of; }),
           "T: random tokens of every rank");
}

constexpr absl::string_view kAllPaths = "all";

absl::StatusOr<std::vector<LayerPath>> ReadPaths(absl::string_view flag, absl::string_view text) {
  if (text == kAllPaths) return std::vector<LayerPath>{LayerPath::kLaunches, LayerPath::kDecode};
  const absl::StatusOr<LayerPath> path = ParseEnum<LayerPath>(absl::StrCat("--", flag), text);
  if (path.ok()) return std::vector<LayerPath>{*path};
  return absl::InvalidArgumentError(absl::StrCat(path.status().message(), ", ", kAllPaths));
}

absl::string_view PathsText(const std::vector<LayerPath>& paths) {
  return paths.size() == 1 ? EnumName(paths.front()) : kAllPaths;
}

void AddKernelFlags(CommandLine& line, LayerFlags& flags) {
  MoeLayerConfig& config = flags.layer_run.config;
  AddFlags(line, flags.run, {"placement"});
  line.Add("apply", flags.apply,
           "a placement like that of --placement, which the layer takes at the end: experts are\n"
           "copied into free slots beside a call, and the calls before and after the switch are\n"
           "checked; empty: none");
  line.Add("apply_blocks", flags.layer_run.apply_blocks,
           "the most blocks of a kernel that makes the copies of --apply; 0: copy engines do");
  line.Add("dtype", config.dtype,
           absl::StrCat(EnumNames<DType>(), ": the type of a row's elements"));
  line.Add(
      "weights", flags.weights,
      "fp8, mxfp4, bf16 or fp16: the type of the experts' weights, which are converted to it:\n"
      "fp8, mxfp4 or that of the rows; empty: the folder's, otherwise that of the rows");
  line.Add("fp8_rows", config.fp8_rows,
           "with MXFP4 weights, in several launches: rows are quantized to FP8 before the\n"
           "experts' products; --path=decode multiplies rows of --dtype");
  line.Add("strategy", config.strategy,
           absl::StrCat(EnumNames<Strategy>(),
                        ": how tokens are sent; auto: the fastest for\nsuch calls"));
  line.Add("fusion",
           ValueOf(config.fusion, {Fusion::kAuto, Fusion::kNone, Fusion::kTiles, Fusion::kSerial}),
           "auto, none, tiles, serial: how the kernels of dispatch, products and combine are put\n"
           "together");
  line.Add("max_blocks", config.max_blocks, "the most blocks of a launch; 0: as many as fit");
  line.Add("shared", config.shared_experts,
           absl::StrCat(EnumNames<SharedExperts>(),
                        ": shared experts after combine, or beside\ndispatch and combine"));
  line.Add("path", Bound(flags.paths, ReadPaths, PathsText),
           absl::StrCat(EnumNames<LayerPath>(), ", ", kAllPaths,
                        ": kernels for router, dispatch,\n"
                        "products and combine, or all of it in one, for at most 64 tokens of all\n"
                        "ranks; all: both paths, one after the other"));
  line.Add("link_blocks", config.link_blocks,
           "the most blocks of dispatch and combine, for products beside them; 0: --max_blocks");
}

void AddMemoryFlags(CommandLine& line, LayerFlags& flags) {
  line.Add(
      "capacity", flags.capacity,
      "rows that a rank has memory for, as a multiple of those that even routing brings: 1.25;\n"
      "a call that needs more takes its tokens in passes; 0: memory for all that can come");
  line.Add("memory", flags.memory,
           "print every buffer of a rank with its bytes, allocate nothing and run nothing; the\n"
           "shape is that of the family's model on emulated GPUs, too");
  line.Add("statistics", flags.statistics,
           "count the rows of each expert on the GPUs, and print those of all calls");
  line.Add("loads", flags.loads,
           "F.npy to write: int64 [E], the rows of each expert in all calls, for `octet balance\n"
           "--loads`");
}

absl::Status ResolveMemory(const CommandLine& line, LayerFlags& flags) {
  constexpr double kMostCapacity = 1024;
  if (!(flags.capacity >= 0 && flags.capacity <= kMostCapacity)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--capacity is ", flags.capacity, "; it must be from 0 to ", kMostCapacity));
  }
  flags.layer_run.capacity = flags.capacity;
  flags.layer_run.config.loads.count = flags.statistics || !flags.loads.empty();
  if (!flags.memory) return absl::OkStatus();
  if (line.launch().several()) {
    return absl::InvalidArgumentError("--memory is for one node");
  }
  return line.Refuse({"input", "output", "dump", "json", "trace", "contenders", "loads"},
                     "is for a layer that runs, and --memory runs none");
}

absl::Status ResolveShape(const CommandLine& line, bool emulated, LayerFlags& flags) {
  if (flags.all) {
    OCTET_RETURN_IF_ERROR(
        line.Refuse({"layer", "input", "output", "dump", "json", "trace", "contenders", "graph"},
                    "is for one layer, and --all runs all of a folder"));
    if (flags.model.empty()) {
      return absl::InvalidArgumentError("--all needs --model, the folder whose layers it runs");
    }
    if (line.launch().several()) {
      return absl::InvalidArgumentError("--all is for one node");
    }
    flags.layer_run.iters = 0;
    flags.layer_run.check = true;
  }
  if (!flags.model.empty()) {
    return line.Refuse(
        {"family", "experts", "topk", "hidden", "intermediate", "shared_experts", "dtype"},
        "is for random weights; --model has its own");
  }
  OCTET_RETURN_IF_ERROR(line.Refuse({"layer"}, "is one of a model's; it needs --model"));
  MoeLayerConfig& config = flags.layer_run.config;
  const MoeLayerConfig asked = config;
  config = emulated ? SmallShape(flags.family) : ModelShape(flags.family);
  TakeChoices(asked, config);
  config.dtype = asked.dtype;
  config.num_experts = flags.experts.value_or(config.num_experts);
  config.topk = flags.topk.value_or(config.topk);
  config.hidden = flags.hidden.value_or(config.hidden);
  config.intermediate = flags.intermediate.value_or(config.intermediate);
  if (flags.shared_experts.has_value()) {
    const int64_t shared = int64_t{*flags.shared_experts} * config.intermediate;
    if (shared < 0 || shared > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError("--shared_experts is out of range");
    }
    config.shared_intermediate = static_cast<int>(shared);
  }
  config.shared_gate = config.shared_gate && config.shared_intermediate > 0;
  config.router = ModelRouter(flags.family, config.num_experts);
  return absl::OkStatus();
}

absl::Status CheckWeights(const std::string& weights) {
  if (weights.empty()) return absl::OkStatus();
  for (const WeightFormatInfo& info : WeightFormats()) {
    if (info.word != GemmFormat::kSame && info.name == weights) return absl::OkStatus();
  }
  const absl::Status status = ParseEnum<DType>("--weights", weights).status();
  return status.ok() ? status
                     : absl::InvalidArgumentError(
                           absl::StrCat(status.message(), ", ", ScaledFormats(", ")));
}

absl::Status ResolveSteps(const CommandLine& line, LayerFlags& flags) {
  if (!flags.input.empty()) {
    OCTET_RETURN_IF_ERROR(line.Refuse({"tokens"}, "is for random tokens; --input has its own"));
  }
  if (flags.layer_run.iters < 0 || flags.layer_run.warmup < 0) {
    return absl::InvalidArgumentError("--iters and --warmup must be at least 0");
  }
  for (const std::string& name : flags.contenders) {
    OCTET_ASSIGN_OR_RETURN(flags.layer_run.contenders.emplace_back(), ParseLayerLibraries(name));
  }
  if (flags.run.placement.empty()) return line.Refuse({"apply"}, "needs --placement");
  if (flags.contenders.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--contenders have as many experts on each rank, in order; give no --placement");
}

absl::Status ResolveNodes(const CommandLine& line, LayerFlags& flags) {
  OCTET_RETURN_IF_ERROR(CheckNodesFlags(line));
  LayerRunOptions& layer = flags.layer_run;
  layer.rails = RailOptionsOf(flags.run);
  if (!line.launch().several()) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(line.Refuse({"apply"}, "is for one node: over several, experts stay"));
  if (!layer.contenders.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--contenders is for one node, and ", line.launch().num_processes, " have been started"));
  }
  if (layer.graph) {
    OCTET_RETURN_IF_ERROR(CheckGraphOverNodes(flags.run.rail_rows, layer.config.strategy));
  }
  const Fusion fusion = layer.config.fusion;
  if (fusion == Fusion::kAuto || fusion == Fusion::kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--fusion is ", EnumName(fusion),
                                                 "; over several nodes it must be auto or none"));
}

}  // namespace

void AddLayerFlags(CommandLine& line, LayerFlags& flags) {
  AddShapeFlags(line, flags);
  AddFlags(line, flags.run, {"ranks"});
  AddKernelFlags(line, flags);
  AddMemoryFlags(line, flags);
  LayerRunOptions& layer = flags.layer_run;
  line.Add("graph", layer.graph,
           "times the call in a graph as well, captured once and then replayed");
  line.Add("iters", layer.iters, "timed calls; 0: none");
  line.Add("warmup", layer.warmup, "calls before the timed ones");
  line.Add("check", layer.check,
           "compare every token's experts and weights, and logits and y of some tokens, with the\n"
           "reference");
  line.Add("seed", flags.run.workload.seed, "seed of random weights and tokens");
  AddFlags(line, flags.run, {"timeout_ms"});
  line.Add("dump", flags.run.dump,
           "folder for x, logits, topk_idx, topk_weights and y of all tokens, as .npy files\n"
           "(docs/formats.md), in place of older ones");
  AddFlags(line, flags.run, {"json"});
  line.Add("trace", flags.run.trace,
           "with --path=decode: file for the phases of each block, for Perfetto, whose times are\n"
           "printed, too; these are calls of their own");
  line.Add("contenders", flags.contenders,
           "measured beside the layer, a list of EXCHANGE+PRODUCTS: nccl or memcpy_peer, as in\n"
           "perf, and cublas or cublas_streams, as in gemm; they take the router's results");
  AddFlags(line, flags.run, kNodesFlags);
}

absl::Status ResolveLayer(const CommandLine& line, int num_gpus, bool emulated, LayerFlags& flags) {
  int& ranks = flags.run.nodes.ranks_per_node;
  if (ranks == 0) ranks = num_gpus;
  if (ranks < 1) return absl::InvalidArgumentError("--ranks must be at least 0");
  flags.layer_run.config.path = flags.paths.front();
  if (flags.paths.size() > 1) {
    OCTET_RETURN_IF_ERROR(
        line.Refuse({"output", "dump", "json", "trace"}, "is for one path, and --path is all"));
  }
  OCTET_RETURN_IF_ERROR(ResolveMemory(line, flags));
  OCTET_RETURN_IF_ERROR(ResolveShape(line, emulated && !flags.memory, flags));
  OCTET_RETURN_IF_ERROR(CheckWeights(flags.weights));
  OCTET_RETURN_IF_ERROR(ResolveSteps(line, flags));
  OCTET_RETURN_IF_ERROR(ResolveNodes(line, flags));
  if (!flags.run.trace.empty() &&
      (flags.layer_run.config.path != LayerPath::kDecode || line.launch().num_processes > 1)) {
    return absl::InvalidArgumentError(
        "--trace needs --path=decode on one node: only a layer in one launch records its phases");
  }
  if (!line.launch().first()) return absl::OkStatus();  // the first process writes
  for (const std::string& file : {flags.output, flags.run.json, flags.run.trace, flags.loads}) {
    if (!file.empty()) OCTET_RETURN_IF_ERROR(CheckCanWrite(file));
  }
  return flags.run.dump.empty() ? absl::OkStatus() : MakeFolder(flags.run.dump);
}

void TakeChoices(const MoeLayerConfig& asked, MoeLayerConfig& config) {
  config.fp8_rows = asked.fp8_rows;
  config.strategy = asked.strategy;
  config.path = asked.path;
  config.fusion = asked.fusion;
  config.max_blocks = asked.max_blocks;
  config.shared_experts = asked.shared_experts;
  config.link_blocks = asked.link_blocks;
  config.loads = asked.loads;
}

absl::Status ChooseWeights(absl::string_view weights, MoeLayerConfig& config) {
  if (weights.empty()) return absl::OkStatus();
  for (const EnumEntry<GemmFormat>& format : EnumTable(GemmFormat())) {
    config.weights = format.value;
    if (weights == InfoOf(FormatOf(config.dtype, format.value)).name) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--weights is ", weights, ", and the layer's rows are ", EnumName(config.dtype),
                   "; it must be ", EnumName(config.dtype), " or ", ScaledFormats(" or ")));
}

}  // namespace octet
