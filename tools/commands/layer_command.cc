#include "tools/commands/layer_command.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/layer_config.h"
#include "octet/model_folder.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/layer_options.h"
#include "tools/measure/layer/layer_run.h"
#include "tools/report/layer_report.h"
#include "tools/report/nodes_report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/domain.h"
#include "tools/support/exit_code.h"
#include "tools/support/npy.h"
#include "tools/support/progress.h"
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

absl::Status MakeWeights(LayerOptions& options, const NodesOfRanks& nodes, Weights& weights) {
  MoeLayerConfig& config = options.run.config;
  if (!options.model.empty()) {
    OCTET_RETURN_IF_ERROR(OpenFolder(options, weights));
  } else {
    config.max_tokens_per_rank = 1;  // the tokens are not known yet
    OCTET_RETURN_IF_ERROR(Validate(config, nodes));
    weights.random.emplace(config, options.family == ModelFamily::kDeepseekV3, options.seed);
    weights.views = weights.random->weights();
    weights.name = absl::StrCat(EnumName(options.family), " with random weights");
  }
  return ChooseWeights(options.weights, config);
}

absl::StatusOr<LayerTokens> MakeTokens(const LayerOptions& options, int num_ranks) {
  const MoeLayerConfig& config = options.run.config;
  if (options.input.empty()) {
    return RandomTokens(options.tokens, config.hidden, num_ranks, config.dtype, options.seed);
  }
  OCTET_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(options.input, kMostInputBytes));
  absl::StatusOr<LayerTokens> tokens = SplitTokens(array, config.hidden, num_ranks, config.dtype);
  if (tokens.ok()) return tokens;
  return absl::InvalidArgumentError(absl::StrCat(options.input, " ", tokens.status().message()));
}

// What there is before the nodes are joined. All processes have the weights and the tokens of all
// ranks.
struct Prepared {
  absl::StatusOr<Topology> topology = DiscoverTopology();
  absl::StatusOr<LayerOptions> options;
  Weights weights;
  LayerTokens tokens;
};

// What the command line, the model's folder and the input lack or have wrong are the user's errors.
absl::Status Prepare(const CommandLine& line, Prepared& prepared) {
  const absl::StatusOr<Topology>& topology = prepared.topology;
  const int num_gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : kMaxRanks;
  prepared.options = ParseLayerOptions(line, num_gpus, topology.ok() && topology->emulated());
  OCTET_RETURN_IF_ERROR(AsUsageError(prepared.options.status()));
  OCTET_RETURN_IF_ERROR(topology.status());
  LayerOptions& options = *prepared.options;
  OCTET_RETURN_IF_ERROR(topology->CheckRanks(options.num_ranks));
  const NodesOfRanks nodes = {.num_nodes = line.launch().num_processes,
                              .ranks_per_node = options.num_ranks};
  OCTET_RETURN_IF_ERROR(AsUsageError(MakeWeights(options, nodes, prepared.weights)));
  absl::StatusOr<LayerTokens> tokens = MakeTokens(options, nodes.num_nodes * nodes.ranks_per_node);
  OCTET_RETURN_IF_ERROR(AsUsageError(tokens.status()));
  prepared.tokens = *std::move(tokens);
  return absl::OkStatus();
}

absl::Status Report(const Prepared& prepared, const LayerReport& report, const Json& nodes) {
  const LayerOptions& options = *prepared.options;
  const std::string& name = prepared.weights.name;
  absl::PrintF("%s", LayerTable(*prepared.topology, name, report));
  std::fflush(stdout);
  if (!options.output.empty()) {
    OCTET_RETURN_IF_ERROR(WriteLayerOutput(options.output, report, prepared.tokens.leading));
  }
  if (!options.dump.empty()) OCTET_RETURN_IF_ERROR(WriteLayerDump(options.dump, report));
  if (options.json.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.json, {LayerJson(*prepared.topology, name, report, nodes)});
}

// Collective. Runs the layer and reports what it has done, if this is the first process.
absl::StatusOr<LayerReport> RunAndReport(Domain& domain, const Prepared& prepared) {
  const LayerOptions& options = *prepared.options;
  OCTET_ASSIGN_OR_RETURN(const Json facts, NodesToJson(domain));
  absl::StatusOr<LayerReport> report;
  {
    const Progress progress(IsFirst(domain));
    report = RunLayer(domain, options.run, prepared.weights.views, prepared.tokens, progress);
  }
  OCTET_RETURN_IF_ERROR(report.status());
  if (!options.output.empty() || !options.dump.empty()) {
    OCTET_RETURN_IF_ERROR(GatherOutput(domain, *report));
  }
  absl::Status reported;
  if (IsFirst(domain)) reported = AsUsageError(Report(prepared, *report, facts));
  OCTET_RETURN_IF_ERROR(domain.Together(reported));
  return report;
}

int Run(const CommandLine& line) {
  Prepared prepared;
  DomainOptions wanted = {.prepared = Prepare(line, prepared)};
  if (prepared.options.ok()) {
    wanted.num_ranks = prepared.options->num_ranks;
    wanted.timeout = prepared.options->timeout;
    wanted.transport = prepared.options->transport;
  }
  const absl::StatusOr<std::shared_ptr<Domain>> domain = JoinDomain(line.launch(), wanted);
  if (!domain.ok()) return FailToJoin(kName, line.launch(), domain.status());
  const absl::StatusOr<LayerReport> report = RunAndReport(**domain, prepared);
  if (!report.ok()) return Fail(ExitCodeOf(report.status()), report.status());
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
          "it, checked likewise.\n"
          "mpirun -n 2 octet layer --ranks=8 runs on two nodes of 8 ranks, with the experts "
          "spread\n"
          "over all of them; the first one prints. Exit codes:\n"
          "0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline.",
      .flags = LayerFlags(),
      .run = Run,
      .flag_help = LayerFlagHelp(),
      .several_nodes = true,
  };
}

}  // namespace octet
