#include "tools/measure/step/random_shape.h"

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/ep/device/row_arrivals.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/dtype.h"
#include "octet/expert_parallel.h"
#include "runtime/node/schedule.h"
#include "tools/step/run_spec.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

// Word 3 of the counters, which no other stream of a seed uses.
constexpr uint32_t kShapeStream = 0x736f616b;

// The most threads of a block of any strategy.
constexpr int kMostThreads = 512;

// The bytes of rows that a core generates, exchanges and checks in a fraction of a second, while it
// also emulates a GPU. The other costs of a row and of an expert are expressed in such bytes.
constexpr int64_t kStepBytesPerCore = int64_t{16} << 20;
constexpr int kMostCoresPerRank = 4;
// A schedule runs all GPUs on one core, much of whose time goes into letting GPUs wait.
constexpr int64_t kStepBytesUnderASchedule = int64_t{2} << 20;
constexpr int64_t kBytesPerRow = 4096;
constexpr int64_t kBytesPerExpert = 16;
// Bytes that are filled in the time that one byte of a row takes.
constexpr int64_t kFillsPerStep = 8;

constexpr size_t kGpuMemoryShare = 16;

// Draws of one shape.
class Dice {
 public:
  Dice(uint64_t seed, uint32_t index) : stream_(seed, index, 0, kShapeStream) {}

  int Uniform(int low, int high) {
    return low + static_cast<int>(stream_.Below(static_cast<uint32_t>(high - low + 1)));
  }
  // Draws each number of binary digits equally often.
  int LogUniform(int low, int high) {
    const int bits = Uniform(std::bit_width(static_cast<unsigned>(low)),
                             std::bit_width(static_cast<unsigned>(high)));
    return Uniform(std::max(low, 1 << (bits - 1)),
                   static_cast<int>(std::min<int64_t>(high, (int64_t{1} << bits) - 1)));
  }
  bool OneIn(int n) { return Uniform(1, n) == 1; }
  template <typename T>
  T OneOf(absl::Span<const T> values) {
    return values[stream_.Below(static_cast<uint32_t>(values.size()))];
  }
  int OneOf(std::initializer_list<int> values) {
    return OneOf(absl::MakeConstSpan(values.begin(), values.size()));
  }

 private:
  PhiloxStream stream_;
};

// Draws the number of tokens of each rank.
std::vector<int> DrawTokens(Dice& dice, int num_ranks, int max_tokens) {
  enum Kind { kAnything, kFull, kNone, kOneRankOnly, kFullOrNothing, kNumKinds };
  // Anything is drawn as often as all others together.
  const int kind = dice.OneIn(2) ? kAnything : dice.Uniform(0, kNumKinds - 1);
  const int chosen = dice.Uniform(0, num_ranks - 1);
  std::vector<int> tokens;
  for (int rank = 0; rank < num_ranks; ++rank) {
    int number = dice.Uniform(0, max_tokens);
    if (kind == kFull) number = max_tokens;
    if (kind == kNone || (kind == kOneRankOnly && rank != chosen)) number = 0;
    if (kind == kFullOrNothing) number = dice.OneIn(2) ? max_tokens : 0;
    tokens.push_back(number);
  }
  return tokens;
}

std::string DrawRoutingText(Dice& dice, int num_experts, int topk) {
  switch (dice.Uniform(0, 6)) {
    case 0:
      return "one_expert";
    case 1:
    case 2: {
      std::vector<int> divisors;
      for (int n = 1; n <= num_experts; ++n) {
        if (num_experts % n == 0) divisors.push_back(n);
      }
      const int groups = dice.OneOf(absl::MakeConstSpan(divisors));
      const int group_size = num_experts / groups;
      return absl::StrCat("group:", dice.Uniform((topk + group_size - 1) / group_size, groups), "/",
                          groups);
    }
    case 3:
    case 4:
      return absl::StrCat("zipf:", dice.Uniform(0, 30) / 10.0);
    default:
      return "uniform";
  }
}

RoutingSpec DrawRouting(Dice& dice, int num_experts, int topk) {
  return *ParseRouting(DrawRoutingText(dice, num_experts, topk));
}

ScaleFormat DrawScales(Dice& dice) { return dice.OneOf(EnumTable(ScaleFormat{})).value; }

int DrawScaleGroup(Dice& dice) { return dice.OneOf({64, 128, 128, 256}); }

void DrawHighThroughputFormats(Dice& dice, int most_alignment, RunSpec& run) {
  EpConfig& config = run.workload.config;
  config.dispatch_format =
      config.hidden % 16 == 0 && dice.OneIn(3) ? DispatchFormat::kFp8 : DispatchFormat::kSame;
  config.scale_format = DrawScales(dice);
  config.scale_group = DrawScaleGroup(dice);
  const bool tokens = dice.OneIn(4);
  config.output = tokens ? Output::kDeduplicated : Output::kPackedExperts;
  config.high_throughput.duplicates =
      !tokens && dice.OneIn(4) ? Duplicates::kIndex : Duplicates::kFill;
  const int alignment = !tokens && dice.OneIn(3) ? dice.OneOf({2, 8, 64}) : 1;
  config.high_throughput.expert_alignment = std::min(alignment, most_alignment);
  // Rows by token have already been summed in one order.
  config.combine_order =
      static_cast<CombineOrder>(tokens ? dice.OneOf({0, 2}) : dice.Uniform(0, 2));
  config.combine_method = static_cast<CombineMethod>(dice.Uniform(0, 2));
  config.tuning.row_copies = dice.OneIn(4) ? RowCopies::kBulk : RowCopies::kAuto;
  config.high_throughput.host_totals = dice.OneIn(4);
  run.cached = dice.OneIn(4);
}

void DrawLowLatencyFormats(Dice& dice, EpConfig& config) {
  constexpr std::array<Output, 4> kReceived = {Output::kPackedExperts, Output::kPackedExperts,
                                               Output::kExpertMajor, Output::kRankMajor};
  config.dispatch_format = dice.OneIn(3) ? DispatchFormat::kQuantizedFp8 : DispatchFormat::kSame;
  config.scale_format = DrawScales(dice);
  config.scale_group = DrawScaleGroup(dice);
  config.low_latency.failure_policy = dice.OneIn(4) ? FailurePolicy::kMask : FailurePolicy::kAbort;
  config.low_latency.statistics = dice.OneIn(4);
  config.output = dice.OneOf(absl::MakeConstSpan(kReceived));
  config.combine_order = static_cast<CombineOrder>(dice.Uniform(0, 2));
}

// Draws the forms that rows are sent, received and summed in, among those that `strategy` supports.
// `automatic`: Strategy::kAuto chooses the strategy.
void DrawFormats(Dice& dice, Strategy strategy, bool automatic, int most_alignment, RunSpec& run) {
  EpConfig& config = run.workload.config;
  if (Has(strategy, &StrategyInfo::keeps_layouts)) {
    return DrawHighThroughputFormats(dice, most_alignment, run);
  }
  if (Takes(strategy, DispatchFormat::kQuantizedFp8)) return DrawLowLatencyFormats(dice, config);
  // Every strategy supports these.
  config.combine_method = dice.OneIn(2) ? CombineMethod::kAuto : CombineMethod::kPush;
  // direct adds in one order only.
  config.combine_order = static_cast<CombineOrder>(dice.Uniform(0, automatic ? 2 : 1));
}

// Returns the bytes of the largest element that is drawn.
int64_t MostElementBytes() {
  size_t most = 0;
  for (const auto& [dtype, name] : EnumTable(DType{})) most = std::max(most, InfoOf(dtype).bytes);
  return static_cast<int64_t>(most);
}

// The members that determine the cost of a token.
struct TokenCost {
  int num_ranks;
  int num_experts;
  int topk;
  int hidden;
  int room;  // rows that a rank has memory for, for each token of each source rank
};

// Returns the most tokens of a rank that the limits allow; at least 1.
int MostTokens(const ShapeLimits& limits, const TokenCost& cost) {
  const int64_t row_bytes = cost.hidden * MostElementBytes();
  // The memory for rows is filled with NaNs before each step.
  const int64_t filled = int64_t{cost.num_ranks} * cost.room * row_bytes / kFillsPerStep;
  const int64_t step_bytes =
      cost.topk * (row_bytes + kBytesPerRow) + cost.num_experts * kBytesPerExpert + filled;
  // Rows lie in the symmetric heap (or in two batches), in the received rows and in the experts'
  // output.
  const int64_t rows = int64_t{cost.num_ranks} * cost.room + cost.topk;
  const int64_t gpu_bytes = rows * (3 * row_bytes + kBytesPerRow);
  return static_cast<int>(
      std::clamp<int64_t>(std::min(limits.step_bytes / step_bytes / cost.num_ranks,  //
                                   limits.gpu_bytes / gpu_bytes),
                          1, kMaxTokensPerRank));
}

// How rows cross between nodes. Takes from the shape what calls over several nodes do not have.
void DrawNodes(Dice& dice, RunSpec& run) {
  EpConfig& config = run.workload.config;
  run.rail_rows = dice.OneOf(EnumTable(RailRows{})).value;
  run.nodes.intranode_order = std::exchange(config.combine_order, CombineOrder::kAuto);
  run.cached = false;
  config.low_latency.failure_policy = FailurePolicy::kAbort;
  // How many tokens cross at a time. Rails beside a dispatch need compute units, so that not every
  // number of blocks goes with that.
  const int least = (config.max_tokens_per_rank + kMaxRowChunks - 1) / kMaxRowChunks;
  run.rail_chunk = config.tuning.blocks > 0 || dice.OneIn(2)
                       ? 0
                       : dice.LogUniform(least, config.max_tokens_per_rank);
}

void DrawLaunch(Dice& dice, const ShapeLimits& limits, EpConfig& config) {
  Tuning& tuning = config.tuning;
  const int blocks = dice.OneIn(2) ? 0 : dice.LogUniform(2, std::max(2, limits.compute_units));
  tuning.blocks = blocks;
  tuning.send_blocks = blocks == 0 || dice.OneIn(2) ? 0 : dice.Uniform(1, blocks - 1);
  const int waves = dice.OneIn(2) ? 0 : dice.Uniform(1, kMostThreads / limits.wave_size);
  tuning.waves_per_block = waves;
  const int most_waves = waves > 0 ? waves : kMostThreads / limits.wave_size;
  tuning.send_waves = dice.OneIn(2) ? 0 : dice.Uniform(1, most_waves);
  tuning.combine_send_waves = dice.OneIn(2) ? 0 : dice.Uniform(1, most_waves);
  config.max_blocks = dice.OneIn(2) ? 0 : dice.LogUniform(std::max(2, blocks), 1024);
  tuning.row_parts = dice.OneIn(2) ? 0 : dice.LogUniform(1, kMaxRowParts);
}

}  // namespace

ShapeLimits LimitsOf(const Topology& topology, const NodesOfRanks& nodes) {
  const GpuInfo& gpu = topology.gpus.front();
  const int cores =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / nodes.num_nodes, 1,
                 kMostCoresPerRank * nodes.ranks_per_node);
  return {.compute_units = gpu.num_compute_units,
          .wave_size = gpu.wave_size,
          .gpu_bytes = static_cast<int64_t>(gpu.memory_bytes / kGpuMemoryShare),
          .step_bytes =
              CurrentSchedule().empty() ? cores * kStepBytesPerCore : kStepBytesUnderASchedule};
}

const std::vector<SoakVariant>& SoakVariants() {
  static const auto& variants = *[] {
    auto* all = new std::vector<SoakVariant>{{Strategy::kAuto, {}}};
    for (const StrategyInfo* info : StrategyInfos()) {
      for (const Variant& variant : info->variants) {
        all->push_back({info->strategy, variant});
      }
    }
    return all;
  }();
  return variants;
}

RunSpec RandomShape(uint64_t seed, uint32_t index, const NodesOfRanks& nodes,
                    const ShapeLimits& limits) {
  const int num_ranks = nodes.num_nodes * nodes.ranks_per_node;
  Dice dice(seed, index);
  RunSpec run;
  WorkloadSpec& workload = run.workload;
  EpConfig& config = workload.config;
  const SoakVariant& variant = dice.OneOf(absl::MakeConstSpan(SoakVariants()));
  config.strategy = variant.strategy;
  config.variant = variant.options;
  // The strategy whose shapes are drawn, so that kAuto also gets options of one strategy only.
  const bool automatic = variant.strategy == Strategy::kAuto;
  const Strategy strategy =
      automatic ? dice.OneOf(absl::MakeConstSpan(AllStrategies())) : variant.strategy;
  const StrategyInfo& info = InfoOf(strategy);

  workload.num_ranks = num_ranks;
  run.nodes = {.num_nodes = nodes.num_nodes, .ranks_per_node = nodes.ranks_per_node};
  const int most_local =
      std::min(info.most_experts / nodes.ranks_per_node, kMaxExperts / num_ranks);
  const int num_local = std::min(
      most_local, dice.OneIn(2) ? dice.OneOf({1, 2, 8, 32}) : dice.LogUniform(1, most_local));
  config.num_experts = num_ranks * num_local;
  const int most_topk = std::min(kMaxTopk, config.num_experts);
  config.topk =
      std::min(most_topk, dice.OneIn(2) ? dice.OneOf({1, 2, 4, 6, 8}) : dice.Uniform(1, most_topk));
  config.hidden = dice.OneIn(4) ? dice.OneOf({2048, 2880, 4096, 6144, 7168})
                                : 8 * dice.LogUniform(1, info.most_hidden / 8);
  const int64_t most_alignment =
      limits.gpu_bytes / (6 * int64_t{config.hidden} * config.num_experts);
  DrawFormats(dice, strategy, automatic,
              static_cast<int>(std::clamp<int64_t>(most_alignment, 1, kMaxExpertAlignment)), run);
  const int room =
      config.output == Output::kExpertMajor ? num_local : std::min(config.topk, num_local);
  const int most_tokens = std::min(
      MostTokens(limits, {num_ranks, config.num_experts, config.topk, config.hidden, room}),
      std::min(info.most_tokens, kMaxTokensPerRank) / nodes.num_nodes);
  const int max_tokens = dice.LogUniform(1, most_tokens);
  config.max_tokens_per_rank = max_tokens;
  workload.tokens = DrawTokens(dice, num_ranks, max_tokens);
  // Without numbers they are drawn from the shape's seed, from 1 to max_tokens - 1.
  if (max_tokens > 1 && dice.OneIn(8)) workload.tokens.clear();
  config.dtype = dice.OneIn(2) ? DType::kFloat16 : DType::kBFloat16;
  workload.routing = DrawRouting(dice, config.num_experts, config.topk);
  workload.drop = dice.OneIn(2) ? 0.0 : dice.OneOf({1, 10, 50, 90, 100}) / 100.0;
  run.expert = dice.OneIn(2) ? ExpertKind::kId : ExpertKind::kRank;
  run.fuse_expert = dice.OneIn(2);
  DrawLaunch(dice, limits, config);
  if (nodes.num_nodes > 1) DrawNodes(dice, run);
  run.align = dice.OneIn(4) ? Align::kDevice : Align::kHost;
  // A warm-up step entails many more steps, which are not verified, before each series of timed
  // ones.
  run.warmup = dice.OneIn(8) ? 1 : 0;
  run.iters = dice.LogUniform(1, 4);
  workload.seed = static_cast<uint64_t>(dice.Uniform(0, 999'999));
  return run;
}

}  // namespace octet
