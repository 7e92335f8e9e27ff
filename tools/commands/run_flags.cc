#include "tools/commands/run_flags.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/nodes/options.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"
#include "tools/support/atomic_file.h"
#include "tools/support/npy.h"
#include "tools/workload/model_shapes.h"
#include "tools/workload/placement_file.h"

namespace octet {
namespace {

// The flags that --workload=challenge excludes, since the workload determines their values.
constexpr auto kShapeFlags = std::to_array<absl::string_view>(
    {"experts", "topk", "hidden", "max_tokens", "tokens", "dtype", "routing", "drop", "expert",
     "seed", "dump", "trace", "placement"});

// The flags that a soak accepts; it draws everything else.
constexpr auto kSoakFlags = std::to_array<absl::string_view>(
    {"soak", "ranks", "seed", "timeout_ms", "rail_transport", "json", "schedule"});

// The largest file of recorded routing for a node: the most choices that can be run, and a small
// header.
constexpr size_t kMostRecordedBytes =
    size_t{kMaxRanks} * kMaxTokensPerRank * kMaxTopk * sizeof(int64_t) + (size_t{1} << 20);

constexpr int kMostSteps = 1'000'000;
constexpr int kMostInt = std::numeric_limits<int32_t>::max();

// Reads "N" or "N,N,...".
absl::StatusOr<std::vector<int>> ReadTokens(absl::string_view flag, absl::string_view text) {
  std::vector<int> tokens;
  if (text.empty()) return tokens;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (absl::SimpleAtoi(part, &tokens.emplace_back())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", text, " is neither a whole number nor a list of them"));
  }
  return tokens;
}

FlagValue Tokens(std::vector<int>& tokens) {
  return Bound(tokens, ReadTokens, [](const auto& of) { return absl::StrJoin(of, ","); });
}

FlagValue Routing(RoutingSpec& routing) {
  return Bound(
      routing, [](absl::string_view, absl::string_view text) { return ParseRouting(text); },
      [](const RoutingSpec& of) { return of.text; });
}

absl::StatusOr<size_t> ReadMebibytes(absl::string_view flag, absl::string_view text) {
  OCTET_ASSIGN_OR_RETURN(const int mebibytes, WholeNumber(flag, text, 0, kMostInt));
  return static_cast<size_t>(mebibytes) << 20;
}

absl::StatusOr<absl::Duration> ReadMilliseconds(absl::string_view flag, absl::string_view text) {
  OCTET_ASSIGN_OR_RETURN(const int milliseconds, WholeNumber(flag, text, 0, kMostInt));
  return absl::Milliseconds(milliseconds);
}

// A flag that is bound to a member of a RunSpec.
struct Definition {
  absl::string_view name;
  FlagValue value;
  std::string help = {};
  std::string emulated = {};
};

// An enumerator whose help begins with the names of all.
template <typename T>
Definition Choice(absl::string_view name, T& value, absl::string_view help) {
  return {name, ValueOf(value), absl::StrCat(EnumNames<T>(), help)};
}

std::vector<Definition> ShapeDefinitions(RunSpec& run) {
  WorkloadSpec& workload = run.workload;
  EpConfig& config = workload.config;
  return {
      {"ranks", ValueOf(run.nodes.ranks_per_node),
       "GPUs to use on each node, one rank each; 0: all GPUs"},
      {"experts", ValueOf(config.num_experts),
       "E: experts over all ranks; without --placement a multiple of the ranks",
       absl::StrCat(kSmallSizes.experts)},
      {"topk", ValueOf(config.topk), "K: experts that a token chooses",
       absl::StrCat(kSmallSizes.topk)},
      {"hidden", ValueOf(config.hidden), "H: elements of a token's row; a multiple of 8",
       absl::StrCat(kSmallSizes.hidden)},
      {"max_tokens", ValueOf(config.max_tokens_per_rank), "M: the most tokens of a rank"},
      {"tokens", Tokens(workload.tokens),
       "N: tokens of every rank; N,N,...: of each rank; empty: drawn from 1 to M-1 for each rank"},
      Choice("dtype", config.dtype, ": the type of a row's elements"),
      {"routing", Routing(workload.routing),
       "uniform; zipf:S (popularity n^-S, of experts in random order; zipf_sorted:S: in theirs);\n"
       "group:A/B (A of B groups of experts for each token);\n"
       "one_expert (k = 0 goes to expert 0, other choices are dropped); file:PATH.npy (int32 or "
       "int64,\n"
       "[ranks, T, K], or [T, K] split evenly over the ranks; -1: dropped)"},
      {"placement", ValueOf(run.placement),
       "file that says which expert lives where, JSON or .npy (docs/formats.md), of octet "
       "balance;\n"
       "--experts need not be a multiple of the ranks then; empty: in order, as many on each rank"},
      {"drop", ValueOf(workload.drop), "probability that a choice of a token is dropped"},
      Choice("expert", run.expert,
             ": what the expert's stand-in multiplies by,\n1 + expert / E or 1 + rank"),
      {"fuse_expert", ValueOf(run.fuse_expert),
       "combine applies the stand-in; false: a separate kernel before it does, as always where\n"
       "rows are received once or in fp8"},
      {"seed", ValueOf(workload.seed), "seed of all random data; rank r uses seed + r"},
      {"iters", InRange(run.iters, 1, kMostSteps),
       "timed steps of each kind (run: in one piece and by phases)"},
      {"warmup", InRange(run.warmup, 0, kMostSteps), "steps before the timed ones"},
      Choice("align", run.align,
             ": a step's time begins at a barrier of the host's\n"
             "threads, or at one of the GPUs after it"),
  };
}

std::vector<Definition> StrategyDefinitions(RunSpec& run) {
  EpConfig& config = run.workload.config;
  Tuning& tuning = config.tuning;
  return {
      Choice("strategy", config.strategy, "; auto: the fastest for such calls"),
      Choice("slots", config.variant.slots,
             ": how a sender determines the positions of rows, by\n"
             "prefix sums (in token order) or by racing counters (in any order)"),
      Choice("flags", config.variant.flags,
             ": a receiver waits for a flag of each row, or of each source rank"),
      Choice("combine_order", config.combine_order,
             ": the order in which a token's outputs are\n"
             "added, by k, or by rank with rounded sums; auto: the strategy's default"),
      Choice("combine_method", config.combine_method, ": how rows return to their origin"),
      Choice("row_copies", tuning.row_copies,
             ": how dispatch moves rows, by the lanes of waves,\n"
             "16 bytes each, or by the GPU's copy unit (high_throughput)"),
      {"blocks", ValueOf(tuning.blocks), "blocks of a launch; 0: the strategy's choice"},
      {"send_blocks", ValueOf(tuning.send_blocks),
       "number of those blocks that send; 0: the strategy's choice"},
      {"waves", ValueOf(tuning.waves_per_block), "waves of a block; 0: the strategy's choice"},
      {"row_parts", ValueOf(tuning.row_parts),
       "pieces that a row is sent in; 0: the strategy's choice"},
      {"max_blocks", ValueOf(config.max_blocks), "the most blocks of a launch; 0: as many as fit"},
      {"send_waves", ValueOf(tuning.send_waves),
       "number of a block's waves that send in dispatch; 0: the strategy's choice"},
      {"combine_send_waves", ValueOf(tuning.combine_send_waves),
       "number of a block's waves that send in combine; 0: the strategy's choice"},
  };
}

std::vector<Definition> FormatDefinitions(RunSpec& run) {
  EpConfig& config = run.workload.config;
  HighThroughputOptions& high_throughput = config.high_throughput;
  return {
      Choice("format", config.dispatch_format,
             ": what dispatch sends. Rows of the dtype;\n"
             "rows in fp8 with their scales; rows of the dtype, as bytes of no meaning;\n"
             "rows of the dtype, which dispatch quantizes to fp8"),
      Choice("scales", config.scale_format,
             ": the format of the scales of fp8 rows;\npower_of_two is a float32 as well"),
      {"scale_group", ValueOf(config.scale_group), "columns of an fp8 row that share a scale"},
      Choice("received", config.output,
             ": the layout of received rows,\n"
             "by expert; one for each token; and with room for the most rows, by expert or\n"
             "by source rank"),
      Choice("duplicates", high_throughput.duplicates,
             ": the row of a token with several experts on a\n"
             "rank is copied for each of them, or stored once and indexed"),
      {"expert_alignment", ValueOf(high_throughput.expert_alignment),
       "each expert's first row is a multiple of this number"},
      {"host_totals", ValueOf(high_throughput.host_totals),
       "dispatch tells the host how many rows it receives"},
      {"capacity_rows", ValueOf(config.capacity_rows),
       "rows that a rank has room for, a step with more ends with an error; 0: all that could "
       "come\n"
       "(high_throughput)"},
      {"cached", ValueOf(run.cached),
       "dispatch uses the layout of an earlier dispatch (high_throughput)"},
      Choice("failure_policy", config.low_latency.failure_policy,
             ": if a rank is silent, the call fails, or\nthe others continue without it"),
      {"statistics", ValueOf(config.low_latency.statistics),
       "calls count rows and measure waits (low_latency)"},
  };
}

std::vector<Definition> NodesDefinitions(RunSpec& run) {
  return {
      Choice("rail_transport", run.rail_transport,
             ": several nodes: what carries rows between them;\n"
             "auto: NCCL or RCCL on GPUs, if it can be loaded, else MPI"),
      Choice("rail_rows", run.rail_rows,
             ": several nodes: how many rows cross between them, for every rank\n"
             "as many as the most tokens of one, or those that there are, which the host waits to\n"
             "know; auto: blocks with low_latency"),
      {"rail_chunk", InRange(run.rail_chunk, 0, kMaxTokensPerRank),
       "tokens: several nodes: rows cross in chunks of so many tokens of a rank, while the\n"
       "others are distributed or summed within the nodes; 0: all at once"},
      {"intranode_order",
       ValueOf(run.nodes.intranode_order,
               {CombineOrder::kAuto, CombineOrder::kFlat, CombineOrder::kPerRank}),
       "auto, flat, per_rank: several nodes: the order in which a token's outputs are added\n"
       "within a node; those sums are added by node"},
  };
}

std::vector<Definition> OutputDefinitions(RunSpec& run) {
  return {
      {"check", ValueOf(run.check), "verify every step, to the bit"},
      {"heap_mb", Bound(run.heap_bytes, ReadMebibytes, [](size_t of) { return of >> 20; }),
       "MiB of symmetric heap on every GPU; 0: as much as is needed"},
      {"timeout_ms", Bound(run.timeout, ReadMilliseconds, absl::ToInt64Milliseconds),
       "the deadline of a wait on a GPU; 0: OCTET_TIMEOUT_MS, else 10 s"},
      {"ceilings", ValueOf(run.ceilings),
       "measure the limits of links, launches and the host barrier"},
      {"dump", ValueOf(run.dump),
       "folder for the last step's data of each rank as .npy files, with a meta.json that\n"
       "describes them (docs/formats.md); replaces the files of an earlier dump"},
      {"json", ValueOf(run.json), "file for the results of the table, with details"},
      {"trace", ValueOf(run.trace), "file for the events inside the kernels, for Perfetto"},
  };
}

// Reads the recorded routing, and takes K and M from it unless flags give them.
absl::Status ReadRecorded(const CommandLine& line, WorkloadSpec& workload) {
  OCTET_RETURN_IF_ERROR(line.Refuse(
      {"tokens"}, "does not go with --routing=file, which contains the numbers of tokens"));
  const auto nodes = static_cast<size_t>(line.launch().num_processes);
  OCTET_ASSIGN_OR_RETURN(const NpyArray array,
                         ReadNpy(workload.routing.path, kMostRecordedBytes * nodes));
  absl::StatusOr<RecordedRouting> recorded = RecordedFromNpy(array, workload.num_ranks);
  absl::Status status = recorded.status();
  if (status.ok()) {
    status = CheckRecorded(*recorded, workload.config.num_experts);
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(workload.routing.path, ": ", status.message()));
  }
  if (!line.Given("topk")) workload.config.topk = recorded->topk;
  if (!line.Given("max_tokens")) {
    workload.config.max_tokens_per_rank = std::max(1, recorded->num_tokens(0));
  }
  workload.recorded = std::make_shared<RecordedRouting>(*std::move(recorded));
  return absl::OkStatus();
}

}  // namespace

void AddFlags(CommandLine& line, RunSpec& run, absl::Span<const absl::string_view> names) {
  std::map<absl::string_view, Definition> all;
  for (const auto& some : {ShapeDefinitions(run), StrategyDefinitions(run), FormatDefinitions(run),
                           NodesDefinitions(run), OutputDefinitions(run)}) {
    for (const Definition& each : some) all.emplace(each.name, each);
  }
  for (const absl::string_view name : names) {
    if (line.Has(name)) continue;
    const Definition& flag = all.at(name);
    line.Add(name, flag.value, flag.help, flag.emulated);
  }
}

absl::StatusOr<Topology> DiscoverGpus(CommandLine& line) {
  absl::StatusOr<Topology> topology = DiscoverTopology();
  if (topology.ok() && topology->emulated()) line.UseEmulatedDefaults();
  return topology;
}

int NumGpus(const absl::StatusOr<Topology>& topology) {
  return topology.ok() ? static_cast<int>(topology->gpus.size()) : kMaxRanks;
}

absl::Status ResolveRanks(const CommandLine& line, int num_gpus, RunSpec& run) {
  int& ranks = run.nodes.ranks_per_node;
  if (ranks == 0) ranks = std::min(num_gpus, kMaxRanks);
  OCTET_RETURN_IF_ERROR(CheckRange("ranks", ranks, 1, kMaxRanks));
  if (ranks > num_gpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks=", ranks, " needs as many GPUs; there are ", num_gpus,
                     " (OCTET_RANKS_PER_GPU=n lets n ranks share each)"));
  }
  OCTET_RETURN_IF_ERROR(CheckNodesFlags(line));
  run.nodes.num_nodes = line.launch().num_processes;
  run.workload.num_ranks = run.nodes.num_nodes * ranks;
  return absl::OkStatus();
}

absl::Status ResolveChoices(const CommandLine& line, WorkloadSpec& workload) {
  OCTET_RETURN_IF_ERROR(CheckRange("experts", workload.config.num_experts, 1, kMaxExperts));
  if (workload.tokens.size() == 1) {
    workload.tokens.assign(static_cast<size_t>(workload.num_ranks), workload.tokens[0]);
  }
  if (workload.routing.kind == RoutingKind::kFile) return ReadRecorded(line, workload);
  return absl::OkStatus();
}

absl::Status ResolvePlacement(RunSpec& run) {
  EpConfig& config = run.workload.config;
  if (run.placement.empty()) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(config.placement,
                         ReadPlacement(run.placement, config.num_experts, run.workload.num_ranks));
  return absl::OkStatus();
}

absl::Status ResolveShape(const CommandLine& line, int num_gpus, RunSpec& run) {
  OCTET_RETURN_IF_ERROR(ResolveRanks(line, num_gpus, run));
  OCTET_RETURN_IF_ERROR(ResolveChoices(line, run.workload));
  OCTET_RETURN_IF_ERROR(ResolvePlacement(run));
  return CompleteSpec(run);
}

absl::Status CheckNodesFlags(const CommandLine& line) {
  if (line.launch().several()) return absl::OkStatus();
  return line.Refuse(kNodesFlags, "is for several nodes, and this is one (docs/several_nodes.md)");
}

absl::Status CheckGraphOverNodes(RailRows rows, Strategy strategy) {
  if (ChosenRows(rows, strategy) == RailRows::kBlocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--graph over several nodes needs --rail_rows=blocks, or --strategy=low_latency: otherwise "
      "the host waits for the numbers of rows that cross, which a graph does not have");
}

void AddRunFlags(CommandLine& line, RunFlags& flags) {
  RunSpec& run = flags.run;
  AddFlags(line, run, {"ranks"});
  line.Add("workload", flags.workload,
           "challenge: the nine test and five benchmark shapes of the AMD Distributed Challenge,\n"
           "instead of one shape given by flags");
  line.Add("soak", InRange(flags.soak_seconds, 1, kMostInt),
           "SECONDS: instead of one shape given by flags, run random shapes, routings and\n"
           "strategies until the time is over, on all ranks or fewer; the first failure ends it.\n"
           "From 30 s on, host memory that grows in the second half is an error as well");
  AddFlags(line, run, {"max_tokens", "tokens"});
  AddFlags(line, run, kStepFlags);
  AddFlags(line, run, {"placement", "strategy"});
  AddFlags(line, run, kVariantFlags);
  AddFlags(line, run, kNodesFlags);
  AddFlags(line, run, kLaunchFlags);
  AddFlags(line, run, kFormatFlags);
  AddFlags(line, run, {"check", "heap_mb", "timeout_ms"});
  line.Add("schedule", flags.schedule,
           "emulated GPUs: SEED or KIND:SEED of an order of execution that delays part of the\n"
           "work, the same in each run. Kinds: random, starve_device, starve_block, starve_wave,\n"
           "delay_device (starts late and is seen late), lap (one device is calls ahead); SEED\n"
           "alone picks a kind");
  AddFlags(line, run, {"ceilings", "dump", "json", "trace"});
  line.HaveOneDefault();
}

absl::StatusOr<std::vector<RunSpec>> ResolveRun(const CommandLine& line, const RunFlags& flags,
                                                int num_gpus) {
  RunSpec run = flags.run;
  std::vector<RunSpec> shapes;
  if (flags.workload.empty()) {
    OCTET_RETURN_IF_ERROR(ResolveShape(line, num_gpus, run));
    shapes.push_back(run);
  } else if (flags.workload == "challenge") {
    OCTET_RETURN_IF_ERROR(ResolveRanks(line, num_gpus, run));
    OCTET_RETURN_IF_ERROR(
        line.Refuse(kShapeFlags, absl::StrCat("does not go with --workload=", flags.workload)));
    shapes = ChallengeShapes(run);
    for (RunSpec& shape : shapes) OCTET_RETURN_IF_ERROR(CompleteSpec(shape));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--workload=", flags.workload, " is not challenge"));
  }
  for (const std::string& file : {run.json, run.trace}) {
    if (!file.empty() && line.launch().first()) OCTET_RETURN_IF_ERROR(CheckCanWrite(file));
  }
  return shapes;
}

absl::StatusOr<SoakSpec> ResolveSoak(const CommandLine& line, const RunFlags& flags, int num_gpus) {
  std::vector<absl::string_view> drawn;
  for (const CommandLine::Flag& flag : line.flags()) {
    if (!absl::c_linear_search(kSoakFlags, flag.name)) drawn.emplace_back(flag.name);
  }
  OCTET_RETURN_IF_ERROR(
      line.Refuse(drawn, "does not go with --soak, which draws the shapes itself"));
  RunSpec run = flags.run;
  OCTET_RETURN_IF_ERROR(ResolveRanks(line, num_gpus, run));
  SoakSpec soak = {.num_ranks = run.nodes.ranks_per_node,
                   .seed = run.workload.seed,
                   .duration = absl::Seconds(flags.soak_seconds),
                   .timeout = run.timeout,
                   .rail_transport = run.rail_transport,
                   .max_growth = std::nullopt,
                   .json = run.json};
  // The first shapes of each kind make memory grow, whatever is freed after them.
  constexpr int kLeastSecondsForGrowth = 30;
  if (flags.soak_seconds >= kLeastSecondsForGrowth) soak.max_growth = kMaxSoakGrowth;
  if (!soak.json.empty() && line.launch().first()) {
    OCTET_RETURN_IF_ERROR(CheckCanWrite(soak.json));
  }
  return soak;
}

std::string CommandOf(const RunSpec& run) {
  CommandLine line;
  RunFlags flags;
  AddRunFlags(line, flags);
  flags.run = run;
  flags.schedule = CurrentSchedule();
  const int num_nodes = run.nodes.num_nodes;
  return absl::StrCat(num_nodes > 1 ? absl::StrCat("mpirun -n ", num_nodes, " ") : "", "octet run ",
                      absl::StrJoin(line.Changed(), " "));
}

}  // namespace octet
