#include "tools/commands/run_options.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/nodes/options.h"
#include "octet/expert_parallel.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"
#include "tools/step/step_executor.h"
#include "tools/support/atomic_file.h"
#include "tools/support/npy.h"

namespace {

template <typename T>
std::string Names() {
  return octet::EnumNames<T>();
}

}  // namespace

ABSL_FLAG(int32_t, ranks, 0, "GPUs to use on each node, one rank each; 0: all GPUs");
ABSL_FLAG(std::string, workload, "",
          "challenge: the nine test and five benchmark shapes of the AMD Distributed Challenge,\n"
          "instead of one shape given by flags");
ABSL_FLAG(
    int32_t, soak, 0,
    "SECONDS: instead of one shape given by flags, run random shapes, routings and strategies\n"
    "until the time is over, on all ranks or fewer; the first failure ends it. From 30 s on,\n"
    "host memory that grows in the second half is an error as well");
ABSL_FLAG(int32_t, experts, 256, "E: experts over all ranks; a multiple of the ranks");
ABSL_FLAG(int32_t, topk, 8, "K: experts that a token chooses");
ABSL_FLAG(int32_t, hidden, 7168, "H: elements of a token's row; a multiple of 8");
ABSL_FLAG(int32_t, max_tokens, 256, "M: the most tokens of a rank");
ABSL_FLAG(
    std::string, tokens, "",
    "N: tokens of every rank; N,N,...: of each rank; empty: drawn from 1 to M-1 for each rank");
ABSL_FLAG(std::string, dtype, "bf16",
          absl::StrCat(Names<octet::DType>(), ": the type of a row's elements"));
ABSL_FLAG(std::string, strategy, "auto",
          absl::StrCat(Names<octet::Strategy>(),
                       "; auto: the fastest for such calls.\n"
                       "perf also takes a list, other contenders (nccl, memcpy_peer) and all"));
ABSL_FLAG(
    std::string, routing, "uniform",
    "uniform; zipf:S (popularity n^-S); group:A/B (A of B groups of experts for each token);\n"
    "one_expert (k = 0 goes to expert 0, other choices are dropped); file:PATH.npy (int32 or "
    "int64,\n"
    "[ranks, T, K], or [T, K] split evenly over the ranks; -1: dropped)");
ABSL_FLAG(double, drop, 0.0, "probability that a choice of a token is dropped");
ABSL_FLAG(std::string, expert, "id",
          absl::StrCat(Names<octet::ExpertKind>(),
                       ": what the expert's stand-in multiplies by,\n"
                       "1 + expert / E or 1 + rank"));
ABSL_FLAG(bool, fuse_expert, true,
          "combine applies the stand-in; false: a separate kernel before it does, as always where\n"
          "rows are received once or in fp8");
ABSL_FLAG(uint64_t, seed, 4, "seed of all random data; rank r uses seed + r");
ABSL_FLAG(int32_t, iters, 20, "timed steps of each kind (run: in one piece and by phases)");
ABSL_FLAG(int32_t, warmup, 2, "steps before the timed ones");
ABSL_FLAG(bool, check, true, "verify every step, to the bit");
ABSL_FLAG(std::string, slots, "prefix",
          absl::StrCat(Names<octet::Slots>(),
                       ": how a sender determines the positions of rows, by\n"
                       "prefix sums (in token order) or by racing counters (in any order)"));
ABSL_FLAG(std::string, flags, "token",
          absl::StrCat(Names<octet::Flags>(),
                       ": a receiver waits for a flag of each row, or of "
                       "each source rank"));
ABSL_FLAG(int32_t, blocks, 0, "blocks of a launch; 0: the strategy's choice");
ABSL_FLAG(int32_t, send_blocks, 0, "number of those blocks that send; 0: the strategy's choice");
ABSL_FLAG(int32_t, waves, 0, "waves of a block; 0: the strategy's choice");
ABSL_FLAG(int32_t, max_blocks, 0, "the most blocks of a launch; 0: as many as fit");
ABSL_FLAG(int32_t, send_waves, 0,
          "number of a block's waves that send in dispatch; 0: the strategy's choice");
ABSL_FLAG(int32_t, combine_send_waves, 0,
          "number of a block's waves that send in combine; 0: the strategy's choice");
ABSL_FLAG(std::string, combine_order, "auto",
          absl::StrCat(Names<octet::CombineOrder>(),
                       ": the order in which a token's outputs are\n"
                       "added, by k, or by rank with rounded sums; auto: the strategy's default"));
ABSL_FLAG(std::string, rail_transport, "auto",
          absl::StrCat(Names<octet::RailTransport>(),
                       ": several nodes: what carries rows between them;\n"
                       "auto: NCCL or RCCL on GPUs, if it can be loaded, else MPI"));
ABSL_FLAG(
    std::string, rail_rows, "auto",
    absl::StrCat(Names<octet::RailRows>(),
                 ": several nodes: how many rows cross between them,\n"
                 "--max_tokens of each rank, or those that there are, which the host waits to "
                 "know;\n"
                 "auto: blocks with low_latency"));
ABSL_FLAG(int32_t, rail_chunk, 0,
          "tokens: several nodes: rows cross in chunks of so many tokens of a rank, while the\n"
          "others are distributed or summed within the nodes; 0: all at once");
ABSL_FLAG(std::string, intranode_order, "auto",
          "auto, flat, per_rank: several nodes: the order in which a token's outputs are added\n"
          "within a node; those sums are added by node");
ABSL_FLAG(std::string, combine_method, "auto",
          absl::StrCat(Names<octet::CombineMethod>(), ": how rows return to their origin"));
ABSL_FLAG(std::string, row_copies, "auto",
          absl::StrCat(Names<octet::RowCopies>(),
                       ": how dispatch moves rows, by the lanes of waves,\n"
                       "16 bytes each, or by the GPU's copy unit (high_throughput)"));
ABSL_FLAG(std::string, format, "same",
          absl::StrCat(Names<octet::DispatchFormat>(),
                       ": what dispatch sends. Rows of the dtype;\n"
                       "rows in fp8 with their scales; rows of the dtype, as bytes of no meaning;\n"
                       "rows of the dtype, which dispatch quantizes to fp8"));
ABSL_FLAG(std::string, scales, "float32",
          absl::StrCat(Names<octet::ScaleFormat>(),
                       ": the format of the scales of fp8 rows;\n"
                       "power_of_two is a float32 as well"));
ABSL_FLAG(int32_t, scale_group, 128, "columns of an fp8 row that share a scale");
ABSL_FLAG(
    std::string, received, "packed",
    absl::StrCat(Names<octet::Output>(),
                 ": the layout of received rows,\n"
                 "by expert; one for each token; and with room for the most rows, by expert or\n"
                 "by source rank"));
ABSL_FLAG(std::string, duplicates, "fill",
          absl::StrCat(Names<octet::Duplicates>(),
                       ": the row of a token with several experts on a\n"
                       "rank is copied for each of them, or stored once and indexed"));
ABSL_FLAG(int32_t, expert_alignment, 1, "each expert's first row is a multiple of this number");
ABSL_FLAG(bool, host_totals, false, "dispatch tells the host how many rows it receives");
ABSL_FLAG(bool, cached, false, "dispatch uses the layout of an earlier dispatch (high_throughput)");
ABSL_FLAG(std::string, failure_policy, "abort",
          absl::StrCat(Names<octet::FailurePolicy>(),
                       ": if a rank is silent, the call fails, or\n"
                       "the others continue without it"));
ABSL_FLAG(bool, statistics, false, "calls count rows and measure waits (low_latency)");
ABSL_FLAG(int32_t, row_parts, 0, "pieces that a row is sent in; 0: the strategy's choice");
ABSL_FLAG(int32_t, heap_mb, 0, "MiB of symmetric heap on every GPU; 0: as much as is needed");
ABSL_FLAG(int32_t, timeout_ms, 0,
          "the deadline of a wait on a GPU; 0: OCTET_TIMEOUT_MS, else 10 s");
ABSL_FLAG(std::string, align, "host",
          absl::StrCat(Names<octet::Align>(),
                       ": a step's time begins at a barrier of the host's\n"
                       "threads, or at one of the GPUs after it"));
ABSL_FLAG(
    std::string, schedule, "",
    "emulated GPUs: SEED or KIND:SEED of an order of execution that delays part of the work, the\n"
    "same in each run. Kinds: random, starve_device, starve_block, starve_wave, delay_device\n"
    "(starts late and is seen late), lap (one device is calls ahead); SEED alone picks a kind");
ABSL_FLAG(bool, ceilings, false, "measure the limits of links, launches and the host barrier");
ABSL_FLAG(std::string, dump, "",
          "folder for the last step's data of each rank as .npy files, with a meta.json that\n"
          "describes them (docs/formats.md); replaces the files of an earlier dump");
ABSL_FLAG(std::string, json, "", "file for the results of the table, with details");
ABSL_FLAG(std::string, output, "",
          "file to write; empty: octet_trace.json (trace) or octet_tuning.json (tune)");
ABSL_FLAG(std::string, trace, "", "file for the events inside the kernels, for Perfetto");

namespace octet {
namespace {

constexpr auto kRunFlags =
    JoinFlags(std::to_array<absl::string_view>({"workload", "soak", "max_tokens", "tokens"}),
              kStepFlags, kStrategyFlags, kNodesFlags, kLaunchFlags, kFormatFlags,
              std::to_array<absl::string_view>({"check", "heap_mb", "timeout_ms", "schedule",
                                                "ceilings", "dump", "json", "trace"}));

// The flags that --workload=challenge excludes, since the workload determines their values.
constexpr std::array<absl::string_view, 12> kShapeFlags = {
    "experts", "topk", "hidden", "max_tokens", "tokens", "dtype",
    "routing", "drop", "expert", "seed",       "dump",   "trace"};

// The largest file of recorded routing for a node: the most choices that can be run, and a small
// header.
constexpr size_t kMostRecordedBytes =
    size_t{kMaxRanks} * kMaxTokensPerRank * kMaxTopk * sizeof(int64_t) + (size_t{1} << 20);

// The flags that a soak accepts; it draws everything else.
constexpr auto kSoakFlags = std::to_array<absl::string_view>(
    {"soak", "ranks", "seed", "timeout_ms", "rail_transport", "json", "schedule"});

struct ChallengeShape {
  int num_experts;
  int topk;
  int hidden;
  int max_tokens;
  uint64_t seed;
  bool benchmark;
};
constexpr std::array<ChallengeShape, 14> kChallenge = {{
    {8, 2, 6144, 4, 1236, false},
    {64, 6, 2048, 4, 1234, false},
    {64, 6, 2048, 8, 542, false},
    {128, 4, 2880, 16, 347, false},
    {128, 4, 2880, 32, 51, false},
    {128, 8, 4096, 64, 175, false},
    {128, 8, 4096, 128, 534, false},
    {256, 8, 7168, 64, 897, false},
    {256, 8, 7168, 128, 4, false},
    {8, 2, 6144, 16, 6635, true},
    {64, 6, 2048, 32, 1234, true},
    {128, 4, 2880, 128, 51, true},
    {128, 8, 4096, 256, 175, true},
    {256, 8, 7168, 256, 4, true},
}};

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, " is not from ", low, " to ", high));
}

// "N" for all ranks, or "N,N,..." for each; empty: none.
absl::StatusOr<std::vector<int>> ParseTokens(const std::string& text, int num_ranks) {
  std::vector<int> tokens;
  if (text.empty()) return tokens;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tokens=", text, " is neither a whole number nor a list of them"));
    }
    tokens.push_back(number);
  }
  if (tokens.size() == 1) tokens.assign(static_cast<size_t>(num_ranks), tokens[0]);
  return tokens;
}

// Reads the recorded routing, and takes K and M from it unless flags give them.
absl::Status ReadRecorded(const CommandLine& line, WorkloadSpec& spec) {
  if (line.Given("tokens")) {
    return absl::InvalidArgumentError(
        "--tokens does not go with --routing=file, which contains the numbers of tokens");
  }
  const auto nodes = static_cast<size_t>(line.launch().num_processes);
  OCTET_ASSIGN_OR_RETURN(const NpyArray array,
                         ReadNpy(spec.routing.path, kMostRecordedBytes * nodes));
  absl::StatusOr<RecordedRouting> recorded = RecordedFromNpy(array, spec.num_ranks);
  absl::Status status = recorded.status();
  if (status.ok()) {
    status = CheckRecorded(*recorded, spec.config.num_experts);
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(spec.routing.path, ": ", status.message()));
  }
  if (!line.Given("topk")) spec.config.topk = recorded->topk;
  if (!line.Given("max_tokens")) {
    spec.config.max_tokens_per_rank = std::max(1, recorded->num_tokens(0));
  }
  spec.recorded = std::make_shared<RecordedRouting>(*std::move(recorded));
  return absl::OkStatus();
}

absl::StatusOr<int> ParseRanks(int num_gpus) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  if (ranks == 0) return std::min(num_gpus, kMaxRanks);
  OCTET_RETURN_IF_ERROR(CheckRange("ranks", ranks, 1, kMaxRanks));
  if (ranks <= num_gpus) return ranks;
  return absl::InvalidArgumentError(
      absl::StrCat("--ranks=", ranks, " needs as many GPUs; there are ", num_gpus,
                   " (OCTET_RANKS_PER_GPU=n lets n ranks share each)"));
}

absl::StatusOr<absl::Duration> ParseTimeout() {
  const int timeout_ms = absl::GetFlag(FLAGS_timeout_ms);
  OCTET_RETURN_IF_ERROR(
      CheckRange("timeout_ms", timeout_ms, 0, std::numeric_limits<int32_t>::max()));
  return absl::Milliseconds(timeout_ms);
}

// Returns the nodes, of `num_ranks` ranks each, that calls are made over, and how.
absl::Status ParseNodes(const CommandLine& line, int num_ranks, RunOptions& options) {
  const int num_nodes = line.launch().num_processes;
  options.workload.num_ranks = num_nodes * num_ranks;
  OCTET_ASSIGN_OR_RETURN(const NodesChoices choices, ParseNodesChoices(line));
  options.rail_transport = choices.transport;
  options.rail_rows = choices.rows;
  options.rail_chunk = choices.chunk_tokens;
  options.nodes = {.num_nodes = num_nodes,
                   .ranks_per_node = num_ranks,
                   .intranode_order = choices.intranode_order};
  return absl::OkStatus();
}

// Returns everything but the shape.
absl::StatusOr<RunOptions> ParseCommon(const CommandLine& line, int num_ranks) {
  RunOptions options;
  OCTET_RETURN_IF_ERROR(ParseNodes(line, num_ranks, options));
  options.iters = absl::GetFlag(FLAGS_iters);
  options.warmup = absl::GetFlag(FLAGS_warmup);
  const int heap_mb = absl::GetFlag(FLAGS_heap_mb);
  constexpr int kMost = 1'000'000;
  constexpr int kMostInt = std::numeric_limits<int32_t>::max();
  OCTET_RETURN_IF_ERROR(CheckRange("iters", options.iters, 1, kMost));
  OCTET_RETURN_IF_ERROR(CheckRange("warmup", options.warmup, 0, kMost));
  OCTET_RETURN_IF_ERROR(CheckRange("heap_mb", heap_mb, 0, kMostInt));
  options.heap_bytes = static_cast<size_t>(heap_mb) << 20;
  OCTET_ASSIGN_OR_RETURN(options.timeout, ParseTimeout());
  options.fuse_expert = absl::GetFlag(FLAGS_fuse_expert);
  options.check = absl::GetFlag(FLAGS_check);
  options.ceilings = absl::GetFlag(FLAGS_ceilings);
  OCTET_ASSIGN_OR_RETURN(options.align, ParseEnum<Align>("align", absl::GetFlag(FLAGS_align)));
  OCTET_ASSIGN_OR_RETURN(options.workload.config.variant.slots,
                         ParseEnum<Slots>("slots", absl::GetFlag(FLAGS_slots)));
  OCTET_ASSIGN_OR_RETURN(options.workload.config.variant.flags,
                         ParseEnum<Flags>("flags", absl::GetFlag(FLAGS_flags)));
  options.workload.config.tuning = {
      .blocks = absl::GetFlag(FLAGS_blocks),
      .send_blocks = absl::GetFlag(FLAGS_send_blocks),
      .waves_per_block = absl::GetFlag(FLAGS_waves),
      .row_parts = absl::GetFlag(FLAGS_row_parts),
      .send_waves = absl::GetFlag(FLAGS_send_waves),
      .combine_send_waves = absl::GetFlag(FLAGS_combine_send_waves),
  };
  options.workload.config.max_blocks = absl::GetFlag(FLAGS_max_blocks);
  OCTET_ASSIGN_OR_RETURN(
      options.workload.config.combine_order,
      ParseEnum<CombineOrder>("combine_order", absl::GetFlag(FLAGS_combine_order)));
  EpConfig& config = options.workload.config;
  OCTET_ASSIGN_OR_RETURN(config.tuning.row_copies,
                         ParseEnum<RowCopies>("row_copies", absl::GetFlag(FLAGS_row_copies)));
  OCTET_ASSIGN_OR_RETURN(
      config.combine_method,
      ParseEnum<CombineMethod>("combine_method", absl::GetFlag(FLAGS_combine_method)));
  OCTET_ASSIGN_OR_RETURN(config.dispatch_format,
                         ParseEnum<DispatchFormat>("format", absl::GetFlag(FLAGS_format)));
  OCTET_ASSIGN_OR_RETURN(config.scale_format,
                         ParseEnum<ScaleFormat>("scales", absl::GetFlag(FLAGS_scales)));
  config.scale_group = absl::GetFlag(FLAGS_scale_group);
  OCTET_ASSIGN_OR_RETURN(config.output,
                         ParseEnum<Output>("received", absl::GetFlag(FLAGS_received)));
  OCTET_ASSIGN_OR_RETURN(config.high_throughput.duplicates,
                         ParseEnum<Duplicates>("duplicates", absl::GetFlag(FLAGS_duplicates)));
  config.high_throughput.expert_alignment = absl::GetFlag(FLAGS_expert_alignment);
  config.high_throughput.host_totals = absl::GetFlag(FLAGS_host_totals);
  OCTET_ASSIGN_OR_RETURN(
      config.low_latency.failure_policy,
      ParseEnum<FailurePolicy>("failure_policy", absl::GetFlag(FLAGS_failure_policy)));
  config.low_latency.statistics = absl::GetFlag(FLAGS_statistics);
  options.cached = absl::GetFlag(FLAGS_cached);
  options.dump = absl::GetFlag(FLAGS_dump);
  options.json = absl::GetFlag(FLAGS_json);
  options.trace = absl::GetFlag(FLAGS_trace);
  return options;
}

// Sets the workload from flags, but for its ranks and its rows.
absl::Status ParseChoices(const CommandLine& line, WorkloadSpec& spec) {
  spec.config.num_experts = absl::GetFlag(FLAGS_experts);
  spec.config.topk = absl::GetFlag(FLAGS_topk);
  spec.config.max_tokens_per_rank = absl::GetFlag(FLAGS_max_tokens);
  spec.drop = absl::GetFlag(FLAGS_drop);
  spec.seed = absl::GetFlag(FLAGS_seed);
  OCTET_RETURN_IF_ERROR(CheckRange("experts", spec.config.num_experts, 1, kMaxExperts));
  OCTET_ASSIGN_OR_RETURN(spec.tokens, ParseTokens(absl::GetFlag(FLAGS_tokens), spec.num_ranks));
  OCTET_ASSIGN_OR_RETURN(spec.routing, ParseRouting(absl::GetFlag(FLAGS_routing)));
  if (spec.routing.kind == RoutingKind::kFile) return ReadRecorded(line, spec);
  return absl::OkStatus();
}

// Sets the shape and the workload from flags.
absl::Status ParseShape(const CommandLine& line, RunOptions& options) {
  WorkloadSpec& spec = options.workload;
  spec.config.hidden = absl::GetFlag(FLAGS_hidden);
  OCTET_ASSIGN_OR_RETURN(spec.config.dtype, ParseEnum<DType>("dtype", absl::GetFlag(FLAGS_dtype)));
  OCTET_ASSIGN_OR_RETURN(options.expert,
                         ParseEnum<ExpertKind>("expert", absl::GetFlag(FLAGS_expert)));
  return ParseChoices(line, spec);
}

// Refuses what calls over several nodes do not have.
absl::Status CheckForSeveralNodes(const RunOptions& options) {
  const CombineOrder order = options.workload.config.combine_order;
  if (order != CombineOrder::kAuto && order != CombineOrder::kPerNode) {
    return absl::InvalidArgumentError(
        absl::StrCat("--combine_order=", EnumName(order),
                     ": over several nodes outputs are added per_node; --intranode_order is the "
                     "order within a node"));
  }
  const absl::string_view without = options.cached           ? "cached"
                                    : !options.trace.empty() ? "trace"
                                                             : "";
  if (without.empty() && CurrentSchedule().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(without.empty() ? "a schedule is" : absl::StrCat("--", without, " is"),
                   " for one node, and ", options.nodes.num_nodes, " have been started"));
}

RunOptions WithShape(const RunOptions& common, const ChallengeShape& shape) {
  RunOptions options = common;
  options.name =
      absl::StrCat(shape.num_experts, "/", shape.topk, "/", shape.hidden, "/", shape.max_tokens);
  options.benchmark = shape.benchmark;
  options.expert = ExpertKind::kRank;
  WorkloadSpec& spec = options.workload;
  spec.config.num_experts = shape.num_experts;
  spec.config.topk = shape.topk;
  spec.config.hidden = shape.hidden;
  spec.config.max_tokens_per_rank = shape.max_tokens;
  spec.config.dtype = DType::kFloat16;
  spec.seed = shape.seed;
  return options;
}

}  // namespace

int RanksPerNode(const RunOptions& options) {
  return options.workload.num_ranks / options.nodes.num_nodes;
}

absl::StatusOr<NodesChoices> ParseNodesChoices(const CommandLine& line) {
  if (!line.launch().several()) {
    for (const absl::string_view flag : kNodesFlags) {
      if (!line.Given(flag)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, " is for several nodes, and this is one (docs/several_nodes.md)"));
    }
  }
  NodesChoices choices;
  OCTET_ASSIGN_OR_RETURN(
      choices.transport,
      ParseEnum<RailTransport>("rail_transport", absl::GetFlag(FLAGS_rail_transport)));
  OCTET_ASSIGN_OR_RETURN(choices.rows,
                         ParseEnum<RailRows>("rail_rows", absl::GetFlag(FLAGS_rail_rows)));
  choices.chunk_tokens = absl::GetFlag(FLAGS_rail_chunk);
  OCTET_RETURN_IF_ERROR(CheckRange("rail_chunk", choices.chunk_tokens, 0, kMaxTokensPerRank));
  OCTET_ASSIGN_OR_RETURN(
      choices.intranode_order,
      ParseEnum<CombineOrder>("intranode_order", absl::GetFlag(FLAGS_intranode_order)));
  if (choices.intranode_order == CombineOrder::kPerNode) {
    return absl::InvalidArgumentError("--intranode_order is not one of auto, flat, per_rank");
  }
  return choices;
}

absl::StatusOr<HeapSize> HeapBytesOf(const RunOptions& options) {
  const WorkloadSpec& spec = options.workload;
  if (options.nodes.num_nodes == 1) return ExpertParallel::HeapBytes(spec.config, spec.num_ranks);
  return ExpertParallel::HeapBytes(IntranodeConfig(spec.config, options.nodes),
                                   RanksPerNode(options));
}

std::vector<RunOptions> ChallengeShapes(const RunOptions& common) {
  std::vector<RunOptions> shapes;
  for (const ChallengeShape& shape : kChallenge) shapes.push_back(WithShape(common, shape));
  return shapes;
}

RailOptions RailOptionsOf(const RunOptions& options) {
  return {.rows = options.rail_rows,
          .chunk_tokens = options.rail_chunk,
          .intranode_order = options.nodes.intranode_order};
}

absl::Status CompleteOptions(RunOptions& options) {
  WorkloadSpec& spec = options.workload;
  EpConfig& config = options.workload.config;
  if (options.nodes.num_nodes > 1) OCTET_RETURN_IF_ERROR(CheckForSeveralNodes(options));
  // No field of EpConfig asks for cached layouts, so kAuto cannot choose a strategy that has them.
  if (options.cached) {
    constexpr auto kKeeps = &StrategyInfo::keeps_layouts;
    if (config.strategy == Strategy::kAuto) config.strategy = FirstWith(kKeeps);
    if (!Has(config.strategy, kKeeps)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--cached: only ", NamesWith(kKeeps), " keeps layouts, not ", EnumName(config.strategy)));
    }
  }
  if (config.dispatch_format == DispatchFormat::kBytes) {
    config.high_throughput.row_bytes = static_cast<int>(config.dtype_row_bytes());
    if (!options.fuse_expert || !CanFuseExpert(config)) {
      return absl::InvalidArgumentError(
          "--format=bytes: experts are applied inside combine, so it goes with neither "
          "--fuse_expert=false nor rows that are received once");
    }
  }
  OCTET_RETURN_IF_ERROR(options.nodes.num_nodes > 1
                            ? ValidateHierarchical(config, options.nodes, options.rail_chunk)
                            : Validate(config, spec.num_ranks));
  options.fuse_expert = options.fuse_expert && CanFuseExpert(config);
  OCTET_ASSIGN_OR_RETURN(const HeapSize needed, HeapBytesOf(options));
  if (options.heap_bytes > 0 && needed.total() > options.heap_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the heap is too small: ", needed.total(),
                     " bytes are needed on every GPU, --heap_mb gives ", options.heap_bytes));
  }
  return Workload::Check(spec);
}

absl::StatusOr<RunOptions> ParseShapeOptions(const CommandLine& line, int num_gpus) {
  OCTET_ASSIGN_OR_RETURN(const int ranks, ParseRanks(num_gpus));
  OCTET_ASSIGN_OR_RETURN(RunOptions options, ParseCommon(line, ranks));
  OCTET_RETURN_IF_ERROR(ParseShape(line, options));
  return options;
}

absl::StatusOr<WorkloadSpec> ParseChoicesOptions(const CommandLine& line, int num_gpus) {
  WorkloadSpec spec;
  OCTET_ASSIGN_OR_RETURN(spec.num_ranks, ParseRanks(num_gpus));
  OCTET_RETURN_IF_ERROR(ParseChoices(line, spec));
  return spec;
}

absl::Span<const absl::string_view> RunFlags() { return kRunFlags; }

absl::StatusOr<std::vector<RunOptions>> ParseRunOptions(const CommandLine& line, int num_gpus) {
  OCTET_ASSIGN_OR_RETURN(const int num_ranks, ParseRanks(num_gpus));
  OCTET_ASSIGN_OR_RETURN(RunOptions common, ParseCommon(line, num_ranks));
  OCTET_ASSIGN_OR_RETURN(common.workload.config.strategy,
                         ParseEnum<Strategy>("strategy", absl::GetFlag(FLAGS_strategy)));
  const std::string workload = absl::GetFlag(FLAGS_workload);
  std::vector<RunOptions> shapes;
  if (workload.empty()) {
    OCTET_RETURN_IF_ERROR(ParseShape(line, common));
    shapes.push_back(common);
  } else if (workload == "challenge") {
    for (const absl::string_view flag : kShapeFlags) {
      if (line.Given(flag)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag, " does not go with --workload=", workload));
      }
    }
    shapes = ChallengeShapes(common);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("--workload=", workload, " is not challenge"));
  }
  for (RunOptions& options : shapes) {
    OCTET_RETURN_IF_ERROR(CompleteOptions(options));
  }
  for (const std::string& file : {common.json, common.trace}) {
    if (!file.empty() && line.launch().first()) OCTET_RETURN_IF_ERROR(CheckCanWrite(file));
  }
  return shapes;
}

absl::StatusOr<SoakOptions> ParseSoakOptions(const CommandLine& line, int num_gpus) {
  for (const absl::string_view flag : kRunFlags) {
    if (line.Given(flag) && absl::c_find(kSoakFlags, flag) == kSoakFlags.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " does not go with --soak, which draws the shapes itself"));
    }
  }
  SoakOptions options;
  const int seconds = absl::GetFlag(FLAGS_soak);
  OCTET_RETURN_IF_ERROR(CheckRange("soak", seconds, 1, std::numeric_limits<int32_t>::max()));
  options.duration = absl::Seconds(seconds);
  // The first shapes of each kind make memory grow, whatever is freed after them.
  constexpr int kLeastSecondsForGrowth = 30;
  if (seconds >= kLeastSecondsForGrowth) options.max_growth = kMaxSoakGrowth;
  OCTET_ASSIGN_OR_RETURN(options.num_ranks, ParseRanks(num_gpus));
  OCTET_ASSIGN_OR_RETURN(options.timeout, ParseTimeout());
  OCTET_ASSIGN_OR_RETURN(const NodesChoices choices, ParseNodesChoices(line));
  options.rail_transport = choices.transport;
  options.seed = absl::GetFlag(FLAGS_seed);
  options.json = absl::GetFlag(FLAGS_json);
  if (!options.json.empty() && line.launch().first()) {
    OCTET_RETURN_IF_ERROR(CheckCanWrite(options.json));
  }
  return options;
}

absl::Status CheckGraphOverNodes(RailRows rows, Strategy strategy) {
  if (ChosenRows(rows, strategy) == RailRows::kBlocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--graph over several nodes needs --rail_rows=blocks, or --strategy=low_latency: otherwise "
      "the host waits for the numbers of rows that cross, which a graph does not have");
}

std::vector<float> ExpertScales(ExpertKind kind, int num_experts, int num_ranks) {
  const int num_local = num_experts / num_ranks;
  std::vector<float> scales;
  for (int e = 0; e < num_experts; ++e) {
    const int rank = e / num_local;
    scales.push_back(kind == ExpertKind::kId
                         ? 1.0F + static_cast<float>(e) / static_cast<float>(num_experts)
                         : 1.0F + static_cast<float>(rank));
  }
  return scales;
}

absl::Span<const EnumEntry<ExpertKind>> EnumTable(ExpertKind) {
  static constexpr EnumEntry<ExpertKind> kTable[] = {{ExpertKind::kId, "id"},
                                                     {ExpertKind::kRank, "rank"}};
  return kTable;
}

absl::Span<const EnumEntry<Align>> EnumTable(Align) {
  static constexpr EnumEntry<Align> kTable[] = {{Align::kHost, "host"}, {Align::kDevice, "device"}};
  return kTable;
}

}  // namespace octet
