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
#include "kernels/strategy_registry.h"
#include "octet/expert_parallel.h"
#include "octet/peers.h"
#include "runtime/status_macros.h"
#include "tools/support/atomic_file.h"
#include "tools/support/npy.h"

ABSL_FLAG(int32_t, ranks, 0, "GPUs to use, one rank each; 0: all that there are");
ABSL_FLAG(std::string, workload, "",
          "challenge: the nine test and five benchmark shapes of the AMD Distributed Challenge,\n"
          "instead of one shape given by flags");
ABSL_FLAG(int32_t, soak, 0,
          "SECONDS: instead of one shape given by flags, draw random shapes, routings and\n"
          "strategies until the time is over, on all ranks or fewer; the first failure ends it");
ABSL_FLAG(int32_t, experts, 256, "E: experts over all ranks; a multiple of the ranks");
ABSL_FLAG(int32_t, topk, 8, "K: experts that a token chooses");
ABSL_FLAG(int32_t, hidden, 7168, "H: elements of a token's row; a multiple of 8");
ABSL_FLAG(int32_t, max_tokens, 256, "M: the most tokens of a rank");
ABSL_FLAG(std::string, tokens, "",
          "N: tokens of every rank, or N,N,...: of each; empty: drawn from 1 to M-1 for each rank");
ABSL_FLAG(std::string, dtype, "bf16", "bf16 or fp16");
ABSL_FLAG(std::string, strategy, "auto",
          absl::StrCat(octet::StrategyNames(),
                       ", or auto: the fastest for such calls; perf takes a list,\n"
                       "peers (nccl, memcpy_peer) and all"));
ABSL_FLAG(
    std::string, routing, "uniform",
    "uniform; zipf:S (popularity n^-S); group:A/B (A of B groups of experts for each token);\n"
    "one_expert (k = 0 goes to expert 0, all else is dropped); file:PATH.npy (int32 or int64,\n"
    "[ranks, T, K], or [T, K] split evenly over the ranks; -1: dropped)");
ABSL_FLAG(double, drop, 0.0, "probability that a choice of a token is dropped");
ABSL_FLAG(std::string, expert, "id",
          "the factor of an expert's stand-in: id (1 + expert / E) or rank (1 + its rank)");
ABSL_FLAG(bool, fuse_expert, true,
          "the stand-in is applied inside combine; false: by a kernel of its own before it, as it\n"
          "always is where rows are received once or in fp8");
ABSL_FLAG(uint64_t, seed, 4, "of all that is drawn; rank r draws with seed + r");
ABSL_FLAG(int32_t, iters, 20, "timed steps of each kind (run: in one piece and by phases)");
ABSL_FLAG(int32_t, warmup, 2, "steps before the timed ones");
ABSL_FLAG(bool, check, true, "verify every step, to the bit");
ABSL_FLAG(std::string, slots, "prefix",
          "places of rows: prefix (sums, ordered) or atomic (racing)");
ABSL_FLAG(std::string, flags, "token", "what a receiver waits for: token (each row) or source");
ABSL_FLAG(int32_t, blocks, 0, "blocks of a launch; 0: the strategy's choice");
ABSL_FLAG(int32_t, send_blocks, 0, "of those, how many send; 0: the strategy's choice");
ABSL_FLAG(int32_t, waves, 0, "waves of a block; 0: the strategy's choice");
ABSL_FLAG(int32_t, max_blocks, 0, "blocks that a launch may take at most; 0: all");
ABSL_FLAG(int32_t, send_waves, 0,
          "of a block's waves, how many send in dispatch; 0: the strategy's choice");
ABSL_FLAG(int32_t, combine_send_waves, 0, "the same in combine");
ABSL_FLAG(std::string, combine_order, "auto",
          "how a token's outputs are added: flat (by k), per_rank, or auto: the strategy's own");
ABSL_FLAG(std::string, combine_method, "auto", "how rows come home: push, pull or auto");
ABSL_FLAG(std::string, row_copies, "auto",
          "how dispatch moves rows: vectors (lanes, 16 bytes each), bulk (the GPU's copy unit) or\n"
          "auto: high_throughput");
ABSL_FLAG(std::string, format, "same",
          "what travels in dispatch: same (rows of the dtype), fp8 (rows that have scales), bytes\n"
          "(rows of the dtype as bytes that mean nothing to dispatch), or quantized_fp8 (rows of\n"
          "the dtype that dispatch makes fp8 of)");
ABSL_FLAG(std::string, scales, "float32", "of fp8: float32, power_of_two (in float32) or ue8m0");
ABSL_FLAG(int32_t, scale_group, 128, "of fp8: columns that share a scale");
ABSL_FLAG(
    std::string, received, "packed",
    "rows by expert (packed), by token (deduplicated), or with room for all that could come, by\n"
    "expert (expert_major) or by source rank (rank_major)");
ABSL_FLAG(std::string, duplicates, "fill",
          "of a token's several experts on a rank: rows are copied (fill) or indexed (index)");
ABSL_FLAG(int32_t, expert_alignment, 1, "rows that each expert's first row is a multiple of");
ABSL_FLAG(bool, host_totals, false, "dispatch tells the host how much is received");
ABSL_FLAG(bool, cached, false, "dispatch uses a layout made before: high_throughput");
ABSL_FLAG(std::string, failure_policy, "abort",
          "when a rank is silent: abort (the call fails) or mask (the others go on without it)");
ABSL_FLAG(bool, statistics, false, "calls count rows and measure waits: low_latency");
ABSL_FLAG(int32_t, row_parts, 0, "pieces that a row is sent in; 0: the strategy's choice");
ABSL_FLAG(int32_t, heap_mb, 0, "MiB of symmetric heap on every GPU; 0: as many as are needed");
ABSL_FLAG(int32_t, timeout_ms, 0,
          "how long a wait on a GPU takes at most; 0: OCTET_TIMEOUT_MS, else 10 s");
ABSL_FLAG(std::string, align, "host",
          "where a step's time begins: host (barrier of the threads) or device (of the GPUs)");
ABSL_FLAG(
    std::string, schedule, "",
    "emulated GPUs: SEED or KIND:SEED of an order in which somebody is late, the same in each\n"
    "run. Kinds: random, starve_device, starve_block, starve_wave, delay_device (starts and\n"
    "tells others late), lap (one is calls ahead); SEED alone picks one");
ABSL_FLAG(bool, ceilings, false, "measure what links, launches and the host barrier can do");
ABSL_FLAG(std::string, dump, "",
          "folder for the last step's data of each rank as .npy files, and a meta.json that says\n"
          "what they are (docs/formats.md); the files of an earlier dump are replaced");
ABSL_FLAG(std::string, json, "", "file for everything in the table and more");
ABSL_FLAG(std::string, output, "",
          "file to write; empty: octet_trace.json (trace) or octet_tuning.json (tune)");
ABSL_FLAG(std::string, trace, "", "file for what happens inside the kernels, for Perfetto");

namespace octet {
namespace {

constexpr auto kRunFlags =
    JoinFlags(std::to_array<absl::string_view>({"workload", "soak", "max_tokens", "tokens"}),
              kStepFlags, kStrategyFlags, kLaunchFlags, kFormatFlags,
              std::to_array<absl::string_view>({"check", "heap_mb", "timeout_ms", "schedule",
                                                "ceilings", "dump", "json", "trace"}));

// What a workload of its own says, so that flags must not.
constexpr std::array<absl::string_view, 12> kShapeFlags = {
    "experts", "topk", "hidden", "max_tokens", "tokens", "dtype",
    "routing", "drop", "expert", "seed",       "dump",   "trace"};

// Of recorded routing: more choices than these cannot be run, and the header is small.
constexpr size_t kMostRecordedBytes =
    size_t{kMaxRanks} * kMaxTokensPerRank * kMaxTopk * sizeof(int64_t) + (size_t{1} << 20);

// What goes with a soak, which draws everything else.
constexpr std::array<absl::string_view, 6> kSoakFlags = {"soak",       "ranks", "seed",
                                                         "timeout_ms", "json",  "schedule"};

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

template <typename T>
struct Choice {
  absl::string_view name;
  T value;
};
constexpr std::array<Choice<ExpertKind>, 2> kExpertKinds = {
    {{"id", ExpertKind::kId}, {"rank", ExpertKind::kRank}}};
constexpr std::array<Choice<Align>, 2> kAligns = {
    {{"host", Align::kHost}, {"device", Align::kDevice}}};
constexpr std::array<Choice<Slots>, 2> kSlots = {
    {{"prefix", Slots::kPrefix}, {"atomic", Slots::kAtomic}}};
constexpr std::array<Choice<CombineOrder>, 3> kCombineOrders = {
    {{"auto", CombineOrder::kAuto},
     {"flat", CombineOrder::kFlat},
     {"per_rank", CombineOrder::kPerRank}}};
constexpr std::array<Choice<RowCopies>, 3> kRowCopies = {
    {{RowCopiesName(RowCopies::kAuto), RowCopies::kAuto},
     {RowCopiesName(RowCopies::kVectors), RowCopies::kVectors},
     {RowCopiesName(RowCopies::kBulk), RowCopies::kBulk}}};
constexpr std::array<Choice<CombineMethod>, 3> kCombineMethods = {{{"auto", CombineMethod::kAuto},
                                                                   {"push", CombineMethod::kPush},
                                                                   {"pull", CombineMethod::kPull}}};
constexpr std::array<Choice<DispatchFormat>, 4> kFormats = {
    {{DispatchFormatName(DispatchFormat::kSame), DispatchFormat::kSame},
     {DispatchFormatName(DispatchFormat::kFp8), DispatchFormat::kFp8},
     {DispatchFormatName(DispatchFormat::kBytes), DispatchFormat::kBytes},
     {DispatchFormatName(DispatchFormat::kQuantizedFp8), DispatchFormat::kQuantizedFp8}}};
constexpr std::array<Choice<ScaleFormat>, 3> kScales = {{{"float32", ScaleFormat::kFloat32},
                                                         {"power_of_two", ScaleFormat::kPowerOfTwo},
                                                         {"ue8m0", ScaleFormat::kUe8m0}}};
constexpr std::array<Choice<Output>, 4> kOutputs = {
    {{OutputName(Output::kPackedExperts), Output::kPackedExperts},
     {OutputName(Output::kDeduplicated), Output::kDeduplicated},
     {OutputName(Output::kExpertMajor), Output::kExpertMajor},
     {OutputName(Output::kRankMajor), Output::kRankMajor}}};
constexpr std::array<Choice<Duplicates>, 2> kDuplicates = {
    {{"fill", Duplicates::kFill}, {"index", Duplicates::kIndex}}};
constexpr std::array<Choice<FailurePolicy>, 2> kFailurePolicies = {
    {{"abort", FailurePolicy::kAbort}, {"mask", FailurePolicy::kMask}}};
constexpr std::array<Choice<Flags>, 2> kFlags = {
    {{"token", Flags::kToken}, {"source", Flags::kSource}}};

template <typename T, size_t n>
absl::StatusOr<T> Choose(const std::array<Choice<T>, n>& choices, absl::string_view flag,
                         absl::string_view text) {
  std::string names;
  for (const Choice<T>& choice : choices) {
    if (choice.name == text) return choice.value;
    absl::StrAppend(&names, names.empty() ? "" : " or ", choice.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", text, " is not ", names));
}

template <typename T, size_t n>
absl::string_view NameOf(const std::array<Choice<T>, n>& choices, T value) {
  for (const Choice<T>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "unknown";
}

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

// Reads the recorded routing, and takes K and M from it where flags do not say them.
absl::Status ReadRecorded(const CommandLine& line, WorkloadSpec& spec) {
  if (line.Given("tokens")) {
    return absl::InvalidArgumentError("--tokens does not go with --routing=file, which has them");
  }
  OCTET_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(spec.routing.path, kMostRecordedBytes));
  absl::StatusOr<RecordedRouting> recorded = RecordedFromNpy(array, spec.num_ranks);
  absl::Status status = recorded.status();
  if (status.ok()) {
    status = CheckRecorded(*recorded, spec.num_experts);
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(spec.routing.path, ": ", status.message()));
  }
  if (!line.Given("topk")) spec.topk = recorded->topk;
  if (!line.Given("max_tokens")) spec.max_tokens = std::max(1, recorded->num_tokens(0));
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

// All but the shape.
absl::StatusOr<RunOptions> ParseCommon(int num_ranks) {
  RunOptions options;
  options.workload.num_ranks = num_ranks;
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
  OCTET_ASSIGN_OR_RETURN(options.align, Choose(kAligns, "align", absl::GetFlag(FLAGS_align)));
  OCTET_ASSIGN_OR_RETURN(options.config.direct.slots,
                         Choose(kSlots, "slots", absl::GetFlag(FLAGS_slots)));
  OCTET_ASSIGN_OR_RETURN(options.config.direct.flags,
                         Choose(kFlags, "flags", absl::GetFlag(FLAGS_flags)));
  options.config.tuning = {
      .blocks = absl::GetFlag(FLAGS_blocks),
      .send_blocks = absl::GetFlag(FLAGS_send_blocks),
      .waves_per_block = absl::GetFlag(FLAGS_waves),
      .row_parts = absl::GetFlag(FLAGS_row_parts),
      .send_waves = absl::GetFlag(FLAGS_send_waves),
      .combine_send_waves = absl::GetFlag(FLAGS_combine_send_waves),
  };
  options.config.max_blocks = absl::GetFlag(FLAGS_max_blocks);
  OCTET_ASSIGN_OR_RETURN(options.config.combine_order, Choose(kCombineOrders, "combine_order",
                                                              absl::GetFlag(FLAGS_combine_order)));
  EpConfig& config = options.config;
  OCTET_ASSIGN_OR_RETURN(config.tuning.row_copies,
                         Choose(kRowCopies, "row_copies", absl::GetFlag(FLAGS_row_copies)));
  OCTET_ASSIGN_OR_RETURN(config.combine_method, Choose(kCombineMethods, "combine_method",
                                                       absl::GetFlag(FLAGS_combine_method)));
  OCTET_ASSIGN_OR_RETURN(config.dispatch_format,
                         Choose(kFormats, "format", absl::GetFlag(FLAGS_format)));
  OCTET_ASSIGN_OR_RETURN(config.scale_format,
                         Choose(kScales, "scales", absl::GetFlag(FLAGS_scales)));
  config.scale_group = absl::GetFlag(FLAGS_scale_group);
  OCTET_ASSIGN_OR_RETURN(config.output,
                         Choose(kOutputs, "received", absl::GetFlag(FLAGS_received)));
  OCTET_ASSIGN_OR_RETURN(config.high_throughput.duplicates,
                         Choose(kDuplicates, "duplicates", absl::GetFlag(FLAGS_duplicates)));
  config.high_throughput.expert_alignment = absl::GetFlag(FLAGS_expert_alignment);
  config.high_throughput.host_totals = absl::GetFlag(FLAGS_host_totals);
  OCTET_ASSIGN_OR_RETURN(
      config.low_latency.failure_policy,
      Choose(kFailurePolicies, "failure_policy", absl::GetFlag(FLAGS_failure_policy)));
  config.low_latency.statistics = absl::GetFlag(FLAGS_statistics);
  options.cached = absl::GetFlag(FLAGS_cached);
  options.dump = absl::GetFlag(FLAGS_dump);
  options.json = absl::GetFlag(FLAGS_json);
  options.trace = absl::GetFlag(FLAGS_trace);
  return options;
}

// Shape and workload from flags.
absl::Status ParseShape(const CommandLine& line, RunOptions& options) {
  WorkloadSpec& spec = options.workload;
  spec.num_experts = absl::GetFlag(FLAGS_experts);
  spec.topk = absl::GetFlag(FLAGS_topk);
  spec.hidden = absl::GetFlag(FLAGS_hidden);
  spec.max_tokens = absl::GetFlag(FLAGS_max_tokens);
  spec.drop = absl::GetFlag(FLAGS_drop);
  spec.seed = absl::GetFlag(FLAGS_seed);
  OCTET_RETURN_IF_ERROR(CheckRange("experts", spec.num_experts, 1, kMaxExperts));
  OCTET_ASSIGN_OR_RETURN(spec.dtype, ParseDType(absl::GetFlag(FLAGS_dtype)));
  OCTET_ASSIGN_OR_RETURN(options.expert,
                         Choose(kExpertKinds, "expert", absl::GetFlag(FLAGS_expert)));
  OCTET_ASSIGN_OR_RETURN(spec.tokens, ParseTokens(absl::GetFlag(FLAGS_tokens), spec.num_ranks));
  OCTET_ASSIGN_OR_RETURN(spec.routing, ParseRouting(absl::GetFlag(FLAGS_routing)));
  if (spec.routing.kind == RoutingKind::kFile) OCTET_RETURN_IF_ERROR(ReadRecorded(line, spec));
  return absl::OkStatus();
}

RunOptions WithShape(const RunOptions& common, const ChallengeShape& shape) {
  RunOptions options = common;
  options.name =
      absl::StrCat(shape.num_experts, "/", shape.topk, "/", shape.hidden, "/", shape.max_tokens);
  options.benchmark = shape.benchmark;
  options.expert = ExpertKind::kRank;
  WorkloadSpec& spec = options.workload;
  spec.num_experts = shape.num_experts;
  spec.topk = shape.topk;
  spec.hidden = shape.hidden;
  spec.max_tokens = shape.max_tokens;
  spec.dtype = DType::kFloat16;
  spec.seed = shape.seed;
  return options;
}

}  // namespace

std::vector<RunOptions> ChallengeShapes(const RunOptions& common) {
  std::vector<RunOptions> shapes;
  for (const ChallengeShape& shape : kChallenge) shapes.push_back(WithShape(common, shape));
  return shapes;
}

absl::Status CompleteOptions(RunOptions& options) {
  WorkloadSpec& spec = options.workload;
  EpConfig& config = options.config;
  config.num_experts = spec.num_experts;
  config.topk = spec.topk;
  config.hidden = spec.hidden;
  config.max_tokens_per_rank = spec.max_tokens;
  config.dtype = spec.dtype;
  // The only one that keeps layouts, which is nothing that a configuration asks for.
  if (options.cached) {
    if (config.strategy == Strategy::kAuto) config.strategy = Strategy::kHighThroughput;
    if (config.strategy != Strategy::kHighThroughput) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--cached: only high_throughput keeps layouts, not ", StrategyName(config.strategy)));
    }
  }
  if (config.dispatch_format == DispatchFormat::kBytes) {
    config.high_throughput.row_bytes = config.hidden * static_cast<int>(kElementBytes);
    if (!options.fuse_expert || !CanFuseExpert(config)) {
      return absl::InvalidArgumentError(
          "--format=bytes: experts are applied inside combine, so it goes with neither "
          "--fuse_expert=false nor rows that are received once");
    }
  }
  OCTET_RETURN_IF_ERROR(Validate(config, spec.num_ranks));
  options.fuse_expert = options.fuse_expert && CanFuseExpert(config);
  if (config.scale_words() > 0) spec.fp8 = config;
  OCTET_ASSIGN_OR_RETURN(const HeapSize needed, ExpertParallel::HeapBytes(config, spec.num_ranks));
  if (options.heap_bytes > 0 && needed.total() > options.heap_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the heap is too small: ", needed.total(),
                     " bytes are needed on every GPU, --heap_mb gives ", options.heap_bytes));
  }
  return Workload::Check(spec);
}

absl::StatusOr<RunOptions> ParseShapeOptions(const CommandLine& line, int num_gpus) {
  OCTET_ASSIGN_OR_RETURN(const int ranks, ParseRanks(num_gpus));
  OCTET_ASSIGN_OR_RETURN(RunOptions options, ParseCommon(ranks));
  OCTET_RETURN_IF_ERROR(ParseShape(line, options));
  return options;
}

absl::Span<const absl::string_view> RunFlags() { return kRunFlags; }

absl::StatusOr<std::vector<RunOptions>> ParseRunOptions(const CommandLine& line, int num_gpus) {
  OCTET_ASSIGN_OR_RETURN(const int num_ranks, ParseRanks(num_gpus));
  OCTET_ASSIGN_OR_RETURN(RunOptions common, ParseCommon(num_ranks));
  OCTET_ASSIGN_OR_RETURN(common.config.strategy, ParseStrategy(absl::GetFlag(FLAGS_strategy)));
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
    if (!file.empty()) OCTET_RETURN_IF_ERROR(CheckCanWrite(file));
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
  OCTET_ASSIGN_OR_RETURN(options.num_ranks, ParseRanks(num_gpus));
  OCTET_ASSIGN_OR_RETURN(options.timeout, ParseTimeout());
  options.seed = absl::GetFlag(FLAGS_seed);
  options.json = absl::GetFlag(FLAGS_json);
  if (!options.json.empty()) OCTET_RETURN_IF_ERROR(CheckCanWrite(options.json));
  return options;
}

bool CanFuseExpert(const EpConfig& config) {
  return config.scale_words() == 0 && !config.rows_once();
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

absl::string_view ExpertKindName(ExpertKind kind) { return NameOf(kExpertKinds, kind); }
absl::string_view AlignName(Align align) { return NameOf(kAligns, align); }
absl::string_view SlotsName(Slots slots) { return NameOf(kSlots, slots); }
absl::string_view FlagsName(Flags flags) { return NameOf(kFlags, flags); }
absl::string_view CombineOrderName(CombineOrder order) { return NameOf(kCombineOrders, order); }
absl::string_view ScalesName(ScaleFormat format) { return NameOf(kScales, format); }
absl::string_view FailurePolicyName(FailurePolicy policy) {
  return NameOf(kFailurePolicies, policy);
}
absl::string_view DuplicatesName(Duplicates duplicates) { return NameOf(kDuplicates, duplicates); }
absl::string_view CombineMethodName(CombineMethod method) {
  return NameOf(kCombineMethods, method);
}

}  // namespace octet
