#include "tools/workload/random_shape.h"

#include <algorithm>
#include <array>
#include <bit>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/strategy_registry.h"
#include "octet/dtype.h"
#include "runtime/schedule.h"
#include "tools/commands/run_options.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

// Word 3 of the counters: no other stream of a seed has it.
constexpr uint32_t kShapeStream = 0x736f616b;

// Threads that a block of any strategy may have.
constexpr int kMostThreads = 512;

// A core generates, exchanges and checks so many bytes of rows in a fraction of a second, emulating
// a GPU as well; and what else a row, or an expert to choose from, costs in the time of such bytes.
constexpr int64_t kStepBytesPerCore = int64_t{16} << 20;
constexpr int kMostCoresPerRank = 4;
// A schedule runs all on one core, and one that is busy with letting GPUs wait.
constexpr int64_t kStepBytesUnderASchedule = int64_t{2} << 20;
constexpr int64_t kBytesPerRow = 4096;
constexpr int64_t kBytesPerExpert = 16;
// As many bytes are filled in the time that one of a row takes.
constexpr int64_t kFillsPerStep = 8;

constexpr size_t kGpuMemoryShare = 16;

// Draws of one shape.
class Dice {
 public:
  Dice(uint64_t seed, uint32_t index) : stream_(seed, index, 0, kShapeStream) {}

  int Uniform(int low, int high) {
    return low + static_cast<int>(stream_.Below(static_cast<uint32_t>(high - low + 1)));
  }
  // As many of one number of binary digits as of any other.
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

// A number for --tokens of each rank.
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

std::string DrawRouting(Dice& dice, int num_experts, int topk) {
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

// How a shape is sent, received and added up: values of the flags of these names.
struct Formats {
  absl::string_view format = "same";
  absl::string_view scales = "float32";
  int scale_group = 128;
  absl::string_view received = "packed";
  absl::string_view duplicates = "fill";
  int expert_alignment = 1;
  CombineOrder combine_order = CombineOrder::kAuto;
  CombineMethod combine_method = CombineMethod::kAuto;
  absl::string_view row_copies = "auto";
  bool host_totals = false;
  bool cached = false;
  FailurePolicy failure_policy = FailurePolicy::kAbort;
  bool statistics = false;
};

absl::string_view DrawScales(Dice& dice) {
  constexpr std::array<absl::string_view, 3> kScales = {"float32", "power_of_two", "ue8m0"};
  return dice.OneOf(absl::MakeConstSpan(kScales));
}

int DrawScaleGroup(Dice& dice) { return dice.OneOf({64, 128, 128, 256}); }

Formats DrawHighThroughputFormats(Dice& dice, int hidden, int most_alignment) {
  Formats formats;
  formats.format = hidden % 16 == 0 && dice.OneIn(3) ? "fp8" : "same";
  formats.scales = DrawScales(dice);
  formats.scale_group = DrawScaleGroup(dice);
  const bool tokens = dice.OneIn(4);
  formats.received = tokens ? "deduplicated" : "packed";
  formats.duplicates = !tokens && dice.OneIn(4) ? "index" : "fill";
  const int alignment = !tokens && dice.OneIn(3) ? dice.OneOf({2, 8, 64}) : 1;
  formats.expert_alignment = std::min(alignment, most_alignment);
  // Rows of tokens have been added up in one order already.
  formats.combine_order =
      static_cast<CombineOrder>(tokens ? dice.OneOf({0, 2}) : dice.Uniform(0, 2));
  formats.combine_method = static_cast<CombineMethod>(dice.Uniform(0, 2));
  formats.row_copies = dice.OneIn(4) ? "bulk" : "auto";
  formats.host_totals = dice.OneIn(4);
  formats.cached = dice.OneIn(4);
  return formats;
}

Formats DrawLowLatencyFormats(Dice& dice) {
  constexpr std::array<absl::string_view, 4> kReceived = {"packed", "packed", "expert_major",
                                                          "rank_major"};
  Formats formats;
  formats.format = dice.OneIn(3) ? "quantized_fp8" : "same";
  formats.scales = DrawScales(dice);
  formats.scale_group = DrawScaleGroup(dice);
  formats.failure_policy = dice.OneIn(4) ? FailurePolicy::kMask : FailurePolicy::kAbort;
  formats.statistics = dice.OneIn(4);
  formats.received = dice.OneOf(absl::MakeConstSpan(kReceived));
  formats.combine_order = static_cast<CombineOrder>(dice.Uniform(0, 2));
  return formats;
}

// What can be asked of `strategy`: of whatever is chosen if `automatic`.
Formats DrawFormats(Dice& dice, Strategy strategy, bool automatic, int hidden, int most_alignment) {
  if (strategy == Strategy::kHighThroughput) {
    return DrawHighThroughputFormats(dice, hidden, most_alignment);
  }
  if (strategy == Strategy::kLowLatency) return DrawLowLatencyFormats(dice);
  // Every strategy supports these.
  Formats formats;
  formats.combine_method = dice.OneIn(2) ? CombineMethod::kAuto : CombineMethod::kPush;
  // direct adds in one order.
  formats.combine_order = static_cast<CombineOrder>(dice.Uniform(0, automatic ? 2 : 1));
  return formats;
}

// Returns the bytes of the largest element that is drawn.
int64_t MostElementBytes() {
  size_t most = 0;
  for (const auto& [dtype, name] : EnumTable(DType{})) most = std::max(most, InfoOf(dtype).bytes);
  return static_cast<int64_t>(most);
}

// The most tokens of a rank that the limits allow; at least 1. `room`: rows that a rank has memory
// for, for each of them and each source rank.
int MostTokens(const ShapeLimits& limits, int num_ranks, int num_experts, int topk, int hidden,
               int room) {
  const int64_t row_bytes = hidden * MostElementBytes();
  // All that there is room for is filled with NaNs before each step.
  const int64_t filled = int64_t{num_ranks} * room * row_bytes / kFillsPerStep;
  const int64_t step_bytes =
      topk * (row_bytes + kBytesPerRow) + num_experts * kBytesPerExpert + filled;
  // Rows lie in the symmetric heap, or in two batches, in what is received, and in the experts'
  // output.
  const int64_t rows = int64_t{num_ranks} * room + topk;
  const int64_t gpu_bytes = rows * (3 * row_bytes + kBytesPerRow);
  return static_cast<int>(
      std::clamp<int64_t>(std::min(limits.step_bytes / step_bytes / num_ranks,  //
                                   limits.gpu_bytes / gpu_bytes),
                          1, kMaxTokensPerRank));
}

// Flags as they are drawn.
class FlagList {
 public:
  template <typename T>
  T Add(absl::string_view name, T value) {
    flags_.push_back(absl::StrCat("--", name, "=", value));
    return value;
  }
  void AddSwitch(absl::string_view name, bool value) { Add(name, value ? "true" : "false"); }
  std::vector<std::string> Take() { return std::move(flags_); }

 private:
  std::vector<std::string> flags_;
};

void AddFormats(const Formats& formats, FlagList& flags) {
  flags.Add("format", formats.format);
  flags.Add("scales", formats.scales);
  flags.Add("scale_group", formats.scale_group);
  flags.Add("received", formats.received);
  flags.Add("duplicates", formats.duplicates);
  flags.Add("expert_alignment", formats.expert_alignment);
  flags.Add("combine_order", EnumName(formats.combine_order));
  flags.Add("combine_method", EnumName(formats.combine_method));
  flags.Add("row_copies", formats.row_copies);
  flags.AddSwitch("host_totals", formats.host_totals);
  flags.AddSwitch("cached", formats.cached);
  flags.Add("failure_policy", EnumName(formats.failure_policy));
  flags.AddSwitch("statistics", formats.statistics);
}

void AddLaunch(Dice& dice, const ShapeLimits& limits, FlagList& flags) {
  const int blocks = flags.Add(
      "blocks", dice.OneIn(2) ? 0 : dice.LogUniform(2, std::max(2, limits.compute_units)));
  flags.Add("send_blocks", blocks == 0 || dice.OneIn(2) ? 0 : dice.Uniform(1, blocks - 1));
  const int waves =
      flags.Add("waves", dice.OneIn(2) ? 0 : dice.Uniform(1, kMostThreads / limits.wave_size));
  const int most_waves = waves > 0 ? waves : kMostThreads / limits.wave_size;
  flags.Add("send_waves", dice.OneIn(2) ? 0 : dice.Uniform(1, most_waves));
  flags.Add("combine_send_waves", dice.OneIn(2) ? 0 : dice.Uniform(1, most_waves));
  flags.Add("max_blocks", dice.OneIn(2) ? 0 : dice.LogUniform(std::max(2, blocks), 1024));
  flags.Add("row_parts", dice.OneIn(2) ? 0 : dice.LogUniform(1, kMaxRowParts));
}

}  // namespace

ShapeLimits LimitsOf(const Topology& topology, int num_ranks) {
  const GpuInfo& gpu = topology.gpus.front();
  const int cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                               kMostCoresPerRank * num_ranks);
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
      for (const StrategyVariant& variant : info->variants) {
        all->push_back({info->strategy, variant});
      }
    }
    return all;
  }();
  return variants;
}

std::vector<std::string> RandomShape(uint64_t seed, uint32_t index, int num_ranks,
                                     const ShapeLimits& limits) {
  Dice dice(seed, index);
  FlagList flags;
  const SoakVariant& variant = dice.OneOf(absl::MakeConstSpan(SoakVariants()));
  // Whose shapes are drawn, so that what only one strategy can do comes up under kAuto, too.
  const bool automatic = variant.strategy == Strategy::kAuto;
  const Strategy strategy =
      automatic ? dice.OneOf(absl::MakeConstSpan(AllStrategies())) : variant.strategy;
  const StrategyInfo& info = InfoOf(strategy);

  flags.Add("ranks", num_ranks);
  const int most_local = info.most_experts / num_ranks;
  const int num_local = std::min(
      most_local, dice.OneIn(2) ? dice.OneOf({1, 2, 8, 32}) : dice.LogUniform(1, most_local));
  const int num_experts = flags.Add("experts", num_ranks * num_local);
  const int most_topk = std::min(kMaxTopk, num_experts);
  const int topk =
      flags.Add("topk", std::min(most_topk, dice.OneIn(2) ? dice.OneOf({1, 2, 4, 6, 8})
                                                          : dice.Uniform(1, most_topk)));
  const int hidden =
      flags.Add("hidden", dice.OneIn(4) ? dice.OneOf({2048, 2880, 4096, 6144, 7168})
                                        : 8 * dice.LogUniform(1, info.most_hidden / 8));
  const int64_t most_alignment = limits.gpu_bytes / (6 * int64_t{hidden} * num_experts);
  const Formats formats =
      DrawFormats(dice, strategy, automatic, hidden,
                  static_cast<int>(std::clamp<int64_t>(most_alignment, 1, kMaxExpertAlignment)));
  const int room = formats.received == "expert_major" ? num_local : std::min(topk, num_local);
  const int most_tokens =
      std::min(MostTokens(limits, num_ranks, num_experts, topk, hidden, room), info.most_tokens);
  const int max_tokens = flags.Add("max_tokens", dice.LogUniform(1, most_tokens));
  // Without numbers they are drawn from the shape's seed, from 1 to one less than the most.
  const std::string tokens = absl::StrJoin(DrawTokens(dice, num_ranks, max_tokens), ",");
  flags.Add("tokens", max_tokens > 1 && dice.OneIn(8) ? "" : tokens);
  flags.Add("dtype", EnumName(dice.OneIn(2) ? DType::kFloat16 : DType::kBFloat16));
  flags.Add("routing", DrawRouting(dice, num_experts, topk));
  flags.Add("drop", dice.OneIn(2) ? 0.0 : dice.OneOf({1, 10, 50, 90, 100}) / 100.0);
  flags.Add("expert", EnumName(dice.OneIn(2) ? ExpertKind::kId : ExpertKind::kRank));
  flags.AddSwitch("fuse_expert", dice.OneIn(2));

  flags.Add("strategy", EnumName(variant.strategy));
  flags.Add("slots", EnumName(variant.options.direct.slots));
  flags.Add("flags", EnumName(variant.options.direct.flags));
  AddLaunch(dice, limits, flags);
  AddFormats(formats, flags);
  flags.Add("align", EnumName(dice.OneIn(4) ? Align::kDevice : Align::kHost));
  // A warm-up step calls for many more right behind each other, which are not verified, before each
  // series of timed ones.
  flags.Add("warmup", dice.OneIn(8) ? 1 : 0);
  flags.Add("iters", dice.LogUniform(1, 4));
  flags.Add("seed", dice.Uniform(0, 999'999));
  return flags.Take();
}

}  // namespace octet
