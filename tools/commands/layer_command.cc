#include "tools/commands/layer_command.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/model_folder.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/status_macros.h"
#include "tools/commands/layer_options.h"
#include "tools/measure/layer_run.h"
#include "tools/report/layer_report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/npy.h"
#include "tools/support/progress.h"
#include "tools/support/watched_node.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "layer";
constexpr size_t kMostInputBytes = size_t{16} << 30;

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, status);
  return exit_code;
}

// The layer's weights, and what owns them.
struct Weights {
  std::unique_ptr<ModelFolder> folder;
  std::optional<RandomWeights> random;
  MoeLayerWeights views;
  std::string name;
};

absl::Status OpenFolder(LayerOptions& options, Weights& weights) {
  OCTET_ASSIGN_OR_RETURN(weights.folder, ModelFolder::Open(options.model));
  const MoeLayerConfig asked = options.run.config;
  MoeLayerConfig& config = options.run.config;
  OCTET_ASSIGN_OR_RETURN(config, weights.folder->LayerConfig(options.layer));
  config.strategy = asked.strategy;
  config.fusion = asked.fusion;
  config.max_blocks = asked.max_blocks;
  config.shared_experts = asked.shared_experts;
  config.link_blocks = asked.link_blocks;
  OCTET_ASSIGN_OR_RETURN(weights.views, weights.folder->Weights(options.layer));
  weights.name = absl::StrCat(EnumName(weights.folder->family()), ", layer ", options.layer, " of ",
                              weights.folder->num_layers());
  return absl::OkStatus();
}

absl::Status MakeWeights(LayerOptions& options, Weights& weights) {
  MoeLayerConfig& config = options.run.config;
  if (!options.model.empty()) {
    OCTET_RETURN_IF_ERROR(OpenFolder(options, weights));
  } else {
    config.max_tokens_per_rank = 1;  // the tokens are not known yet
    OCTET_RETURN_IF_ERROR(Validate(config, options.num_ranks));
    weights.random.emplace(config, options.family == ModelFamily::kDeepseekV3, options.seed);
    weights.views = weights.random->weights();
    weights.name = absl::StrCat(EnumName(options.family), " with random weights");
  }
  return ChooseWeights(options.weights, config);
}

absl::StatusOr<LayerTokens> MakeTokens(const LayerOptions& options) {
  const MoeLayerConfig& config = options.run.config;
  if (options.input.empty()) {
    return RandomTokens(options.tokens, config.hidden, options.num_ranks, config.dtype,
                        options.seed);
  }
  OCTET_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(options.input, kMostInputBytes));
  absl::StatusOr<LayerTokens> tokens =
      SplitTokens(array, config.hidden, options.num_ranks, config.dtype);
  if (tokens.ok()) return tokens;
  return absl::InvalidArgumentError(absl::StrCat(options.input, " ", tokens.status().message()));
}

absl::Status WriteResults(const LayerOptions& options, const Topology& topology,
                          absl::string_view name, const LayerReport& report,
                          const LayerTokens& tokens) {
  if (!options.output.empty()) {
    OCTET_RETURN_IF_ERROR(WriteLayerOutput(options.output, report, tokens.leading));
  }
  if (!options.dump.empty()) OCTET_RETURN_IF_ERROR(WriteLayerDump(options.dump, report));
  if (options.json.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.json, {LayerJson(topology, name, report)});
}

int Run(const CommandLine& line) {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  const int num_gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : kMaxRanks;
  absl::StatusOr<LayerOptions> options =
      ParseLayerOptions(line, num_gpus, topology.ok() && topology->emulated());
  if (!options.ok()) return Fail(kExitUsage, options.status());
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  if (const absl::Status status = topology->CheckRanks(options->num_ranks); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }
  Weights weights;
  // What a folder lacks or has wrong is the user's error.
  if (const absl::Status status = MakeWeights(*options, weights); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  const absl::StatusOr<LayerTokens> tokens = MakeTokens(*options);
  if (!tokens.ok()) return Fail(kExitUsage, tokens.status());
  const absl::StatusOr<std::shared_ptr<Node>> node =
      CreateWatchedNode({.num_ranks = options->num_ranks, .timeout = options->timeout});
  if (!node.ok()) return Fail(ExitCodeOf(node.status()), node.status());
  absl::StatusOr<LayerReport> report;
  {
    const Progress progress;
    report = RunLayer(**node, options->run, weights.views, *tokens, progress);
  }
  if (!report.ok()) return Fail(ExitCodeOf(report.status()), report.status());
  absl::PrintF("%s", LayerTable(*topology, weights.name, *report));
  std::fflush(stdout);
  const absl::Status written = WriteResults(*options, *topology, weights.name, *report, *tokens);
  if (!written.ok()) return Fail(kExitUsage, written);
  const absl::Status checked = report->Checked();
  if (checked.ok()) return kExitOk;
  return Fail(kExitWrongResults,
              absl::DataLossError(absl::StrCat("wrong results: ", checked.message())));
}

}  // namespace

Command LayerCommand() {
  return {
      .name = kName,
      .summary = "a whole MoE layer, of a model folder or with random weights",
      .details =
          "Runs router, dispatch, experts, combine and shared experts on all ranks, for tokens\n"
          "from a file or random ones. Weights come from a model folder as it is (config.json and\n"
          "*.safetensors of Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, DeepSeek-V2 or DeepSeek-V3), or\n"
          "are random. Checks every token's experts and weights to the bit against the logits,\n"
          "and logits and outputs of some tokens against float64, with a bound that counts the\n"
          "roundings on the way. Times each part and the whole; --iters=0 does not.\n"
          "--contenders=nccl+cublas_streams calls what is commonly written instead in turn with\n"
          "it, checked likewise. Exit codes:\n"
          "0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline.",
      .flags = LayerFlags(),
      .run = Run,
      .flag_help = LayerFlagHelp(),
  };
}

}  // namespace octet
