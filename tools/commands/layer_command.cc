#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/layer_config.h"
#include "octet/layer_memory.h"
#include "octet/model_folder.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/commands.h"
#include "tools/commands/layer_flags.h"
#include "tools/commands/run_flags.h"
#include "tools/measure/layer/layer_run.h"
#include "tools/measure/trace/layer_trace.h"
#include "tools/report/layer_report.h"
#include "tools/report/memory_report.h"
#include "tools/report/nodes_report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/domain.h"
#include "tools/support/exit_code.h"
#include "tools/support/npy.h"
#include "tools/support/progress.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/placement_file.h"
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

// Returns the first layer from `layer` on that has experts; the number of layers if none has.
int NextLayer(const ModelFolder& folder, int layer) {
  while (layer < folder.num_layers() && !folder.LayerConfig(layer).ok()) ++layer;
  return layer;
}

// Opens the folder, if it is not open.
absl::Status OpenFolder(LayerFlags& flags, Weights& weights) {
  if (weights.folder == nullptr) {
    OCTET_ASSIGN_OR_RETURN(weights.folder, ModelFolder::Open(flags.model));
    const int first = NextLayer(*weights.folder, 0);
    if (flags.all && first < weights.folder->num_layers()) flags.layer = first;
  }
  const MoeLayerConfig asked = flags.layer_run.config;
  MoeLayerConfig& config = flags.layer_run.config;
  OCTET_ASSIGN_OR_RETURN(config, weights.folder->LayerConfig(flags.layer));
  TakeChoices(asked, config);
  OCTET_ASSIGN_OR_RETURN(weights.views, weights.folder->Weights(flags.layer));
  weights.name = absl::StrCat(EnumName(weights.folder->family()), ", layer ", flags.layer, " of ",
                              weights.folder->num_layers());
  return absl::OkStatus();
}

// Takes the placements that the flags name, of the experts that there are.
absl::Status Place(const NodesOfRanks& nodes, LayerFlags& flags) {
  MoeLayerConfig& config = flags.layer_run.config;
  if (flags.run.placement.empty()) return absl::OkStatus();
  const int ranks = nodes.num_nodes * nodes.ranks_per_node;
  OCTET_ASSIGN_OR_RETURN(config.placement,
                         ReadPlacement(flags.run.placement, config.num_experts, ranks));
  if (flags.apply.empty()) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(flags.layer_run.apply,
                         ReadPlacement(flags.apply, config.num_experts, ranks));
  return absl::OkStatus();
}

absl::Status MakeWeights(LayerFlags& flags, const NodesOfRanks& nodes, Weights& weights) {
  MoeLayerConfig& config = flags.layer_run.config;
  if (!flags.model.empty()) {
    OCTET_RETURN_IF_ERROR(OpenFolder(flags, weights));
    OCTET_RETURN_IF_ERROR(Place(nodes, flags));
  } else {
    OCTET_RETURN_IF_ERROR(Place(nodes, flags));
    config.max_tokens_per_rank = 1;  // the tokens are not known yet
    MoeLayerConfig asked = config;
    OCTET_RETURN_IF_ERROR(ChooseWeights(flags.weights, asked));
    OCTET_RETURN_IF_ERROR(Validate(asked, nodes));
    weights.random.emplace(config, config.router.scores == RouterScores::kSigmoid,
                           flags.run.workload.seed);
    weights.views = weights.random->weights();
    weights.name = absl::StrCat(EnumName(flags.family), " with random weights");
  }
  return ChooseWeights(flags.weights, config);
}

absl::StatusOr<LayerTokens> MakeTokens(const LayerFlags& flags, int num_ranks) {
  const MoeLayerConfig& config = flags.layer_run.config;
  if (flags.input.empty()) {
    return RandomTokens(flags.tokens, config.hidden, num_ranks, config.dtype,
                        flags.run.workload.seed);
  }
  OCTET_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(flags.input, kMostInputBytes));
  absl::StatusOr<LayerTokens> tokens = SplitTokens(array, config.hidden, num_ranks, config.dtype);
  if (tokens.ok()) return tokens;
  return absl::InvalidArgumentError(absl::StrCat(flags.input, " ", tokens.status().message()));
}

// What there is before the nodes are joined. All processes have the weights and the tokens of all
// ranks.
struct Prepared {
  explicit Prepared(LayerFlags& of) : flags(of) {}

  LayerFlags& flags;
  absl::StatusOr<Topology> topology;
  Weights weights;
  LayerTokens tokens;
};

// What the command line, the model's folder and the input lack or have wrong are the user's errors.
absl::Status Prepare(CommandLine& line, Prepared& prepared) {
  LayerFlags& flags = prepared.flags;
  prepared.topology = DiscoverGpus(line);
  const absl::StatusOr<Topology>& topology = prepared.topology;
  OCTET_RETURN_IF_ERROR(AsUsageError(
      ResolveLayer(line, NumGpus(topology), topology.ok() && topology->emulated(), flags)));
  OCTET_RETURN_IF_ERROR(topology.status());
  const NodesOfRanks nodes = {.num_nodes = line.launch().num_processes,
                              .ranks_per_node = flags.run.nodes.ranks_per_node};
  OCTET_RETURN_IF_ERROR(topology->CheckRanks(nodes.ranks_per_node));
  OCTET_RETURN_IF_ERROR(AsUsageError(MakeWeights(flags, nodes, prepared.weights)));
  absl::StatusOr<LayerTokens> tokens = MakeTokens(flags, nodes.num_nodes * nodes.ranks_per_node);
  OCTET_RETURN_IF_ERROR(AsUsageError(tokens.status()));
  prepared.tokens = *std::move(tokens);
  return absl::OkStatus();
}

absl::Status ReportLoads(const LayerFlags& flags, const ExpertLoads& loads, int num_ranks) {
  if (flags.statistics) absl::PrintF("%s", LoadsText(loads, num_ranks));
  if (flags.loads.empty()) return absl::OkStatus();
  return WriteNpy(flags.loads, NpyType::kInt64, {static_cast<int64_t>(loads.rows.size())},
                  loads.rows.data());
}

absl::Status Report(const Prepared& prepared, const LayerReport& report, const Json& nodes) {
  const LayerFlags& flags = prepared.flags;
  const std::string& name = prepared.weights.name;
  absl::PrintF("%s", LayerTable(*prepared.topology, name, report));
  std::fflush(stdout);
  if (!flags.output.empty()) {
    OCTET_RETURN_IF_ERROR(WriteLayerOutput(flags.output, report, prepared.tokens.leading));
  }
  if (!flags.run.dump.empty()) OCTET_RETURN_IF_ERROR(WriteLayerDump(flags.run.dump, report));
  if (report.loads.has_value()) {
    OCTET_RETURN_IF_ERROR(ReportLoads(flags, *report.loads, report.num_ranks));
  }
  if (flags.run.json.empty()) return absl::OkStatus();
  return WriteFileAtomically(flags.run.json, {LayerJson(*prepared.topology, name, report, nodes)});
}

absl::Status Trace(Node& node, const Prepared& prepared, const MoeLayerConfig& config) {
  const LayerFlags& flags = prepared.flags;
  LayerRunOptions options = flags.layer_run;
  options.config = config;
  OCTET_ASSIGN_OR_RETURN(
      const LayerTraceResult trace,
      TraceLayer(node, options, prepared.weights.views, prepared.tokens, flags.run.trace));
  absl::PrintF("%s", LayerTraceText(trace));
  std::fflush(stdout);
  if (trace.check.ok()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("wrong results of a traced call: ", trace.check.first_wrong));
}

// Collective. Runs the layer and reports what it has done, if this is the first process.
absl::StatusOr<LayerReport> RunAndReport(Domain& domain, const Prepared& prepared, LayerPath path) {
  const LayerFlags& flags = prepared.flags;
  OCTET_ASSIGN_OR_RETURN(const Json facts, NodesToJson(domain));
  LayerRunOptions options = flags.layer_run;
  options.config.path = path;
  absl::StatusOr<LayerReport> report;
  {
    const Progress progress(IsFirst(domain));
    report = RunLayer(domain, options, prepared.weights.views, prepared.tokens, progress);
  }
  OCTET_RETURN_IF_ERROR(report.status());
  if (!flags.output.empty() || !flags.run.dump.empty()) {
    OCTET_RETURN_IF_ERROR(GatherOutput(domain, *report));
  }
  absl::Status reported;
  if (IsFirst(domain)) reported = AsUsageError(Report(prepared, *report, facts));
  OCTET_RETURN_IF_ERROR(domain.Together(reported));
  if (!flags.run.trace.empty()) {
    OCTET_RETURN_IF_ERROR(Trace(domain.node(), prepared, report->config));
  }
  return report;
}

// Prints what the layer would take. Allocates nothing.
absl::Status ShowMemory(CommandLine& line, LayerFlags& flags) {
  const absl::StatusOr<Topology> topology = DiscoverGpus(line);
  OCTET_RETURN_IF_ERROR(AsUsageError(
      ResolveLayer(line, NumGpus(topology), topology.ok() && topology->emulated(), flags)));
  OCTET_RETURN_IF_ERROR(topology.status());
  MoeLayerConfig& config = flags.layer_run.config;
  Weights weights = {.folder = nullptr, .random = {}, .views = {}, .name = {}};
  if (!flags.model.empty()) OCTET_RETURN_IF_ERROR(AsUsageError(OpenFolder(flags, weights)));
  OCTET_RETURN_IF_ERROR(AsUsageError(ChooseWeights(flags.weights, config)));
  config.max_tokens_per_rank = std::max(flags.tokens, 1);
  SetCapacity(flags.capacity, config);
  const int ranks = flags.run.nodes.ranks_per_node;
  const absl::StatusOr<LayerMemory> memory = MemoryOfLayer(config, *topology, ranks);
  OCTET_RETURN_IF_ERROR(AsUsageError(memory.status()));
  // The layer to compare with has the same strategy.
  MoeLayerConfig even = config;
  even.strategy = memory->config.strategy;
  even.capacity_rows = static_cast<int>(EvenRows(config));
  const absl::StatusOr<LayerMemory> least = MemoryOfLayer(even, *topology, ranks);
  absl::PrintF("%s", LayerMemoryText(*memory, least.ok() ? &*least : nullptr, ranks));
  return absl::OkStatus();
}

// Loads, runs and checks the folder's layers, and prints a line for each. Returns the first of the
// wrong results.
absl::Status RunAll(Domain& domain, Prepared& prepared) {
  LayerFlags& flags = prepared.flags;
  const ModelFolder& folder = *prepared.weights.folder;
  const NodesOfRanks nodes = {.num_nodes = 1, .ranks_per_node = flags.run.nodes.ranks_per_node};
  absl::Status checked;
  while (flags.layer < folder.num_layers()) {
    OCTET_RETURN_IF_ERROR(AsUsageError(MakeWeights(flags, nodes, prepared.weights)));
    for (const LayerPath path : flags.paths) {
      LayerRunOptions options = flags.layer_run;
      options.config.path = path;
      absl::StatusOr<LayerReport> report;
      {
        const Progress progress;
        report = RunLayer(domain, options, prepared.weights.views, prepared.tokens, progress);
      }
      OCTET_RETURN_IF_ERROR(report.status());
      const absl::Status result = report->Checked();
      const double worst = report->check.has_value() ? report->check->worst : 0;
      checked.Update(result);
      absl::PrintF(
          "layer %d of %d, %s, %s weights, loaded in %.2f s: %s, largest error %.2g of "
          "what is allowed\n",
          flags.layer, folder.num_layers(), EnumName(report->config.path),
          InfoOf(ExpertWeights(report->config)).name, report->load_seconds,
          result.ok() ? "right" : "WRONG", worst);
      std::fflush(stdout);
    }
    flags.layer = NextLayer(folder, flags.layer + 1);
  }
  return checked;
}

int Run(CommandLine& line, LayerFlags& flags) {
  if (flags.memory) {
    const absl::Status shown = ShowMemory(line, flags);
    return shown.ok() ? kExitOk : Fail(ExitCodeOf(shown), shown);
  }
  Prepared prepared(flags);
  const absl::Status ready = Prepare(line, prepared);
  const DomainOptions wanted = {.num_ranks = flags.run.nodes.ranks_per_node,
                                .timeout = flags.run.timeout,
                                .prepared = ready,
                                .transport = flags.run.rail_transport};
  const absl::StatusOr<std::shared_ptr<Domain>> domain = JoinDomain(line.launch(), wanted);
  if (!domain.ok()) return FailToJoin(kName, line.launch(), domain.status());
  absl::Status checked;
  if (flags.all) {
    checked = RunAll(**domain, prepared);
    if (!checked.ok() && !absl::IsDataLoss(checked)) return Fail(ExitCodeOf(checked), checked);
  }
  for (const LayerPath path : flags.paths) {
    if (flags.all) break;
    const absl::StatusOr<LayerReport> report = RunAndReport(**domain, prepared, path);
    if (!report.ok()) return Fail(ExitCodeOf(report.status()), report.status());
    checked.Update(report->Checked());
  }
  if (checked.ok()) return kExitOk;
  return Fail(kExitWrongResults,
              absl::DataLossError(absl::StrCat("wrong results: ", checked.message())));
}

}  // namespace

Command LayerCommand() {
  const Command command = {
      .name = kName,
      .summary = "a whole MoE layer, of a model folder or with random weights",
      .details =
          "Runs router, dispatch, experts, combine and shared experts on all ranks, for tokens\n"
          "from a file or random ones. Weights come from a model folder as it is (config.json and\n"
          "*.safetensors of a family that --family lists), or are random. --all runs all layers\n"
          "of a folder. Checks every token's experts and weights to the bit against the logits,\n"
          "and logits and outputs of some tokens against float64, with a bound that counts the\n"
          "roundings on the way. Times each part and the whole; --iters=0 does not.\n"
          "--memory prints every buffer instead, before anything is allocated.\n"
          "--contenders=nccl+cublas_streams also measures the same experts on NCCL and cuBLAS, in\n"
          "turn with the layer, and checks them likewise.\n"
          "mpirun -n 2 octet layer --ranks=8 runs on two nodes of 8 ranks, with the experts "
          "spread\n"
          "over all of them; the first one prints. Exit codes:\n"
          "0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline.",
      .several_nodes = true,
  };
  return WithFlags<LayerFlags>(command, AddLayerFlags, Run);
}

}  // namespace octet
