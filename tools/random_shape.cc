#include "tools/random_shape.h"

#include <algorithm>
#include <array>
#include <bit>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/dtype.h"
#include "runtime/schedule.h"
#include "tools/philox.h"
#include "tools/run_options.h"

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

constexpr size_t kGpuMemoryShare = 16;

constexpr std::array<StrategyVariant, 7> kVariants = {{
    {Strategy::kAuto, Slots::kPrefix, Flags::kToken},
    {Strategy::kDirect, Slots::kPrefix, Flags::kToken},
    {Strategy::kDirect, Slots::kPrefix, Flags::kSource},
    {Strategy::kDirect, Slots::kAtomic, Flags::kToken},
    {Strategy::kDirect, Slots::kAtomic, Flags::kSource},
    {Strategy::kHighThroughput, Slots::kPrefix, Flags::kToken},
    {Strategy::kLowLatency, Slots::kPrefix, Flags::kToken},
}};

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

// The most tokens of a rank that the limits allow; at least 1.
int MostTokens(const ShapeLimits& limits, int num_ranks, int num_experts, int topk, int hidden) {
  const int64_t row_bytes = int64_t{hidden} * static_cast<int64_t>(kElementBytes);
  const int64_t step_bytes = topk * (row_bytes + kBytesPerRow) + num_experts * kBytesPerExpert;
  // Rows lie in the symmetric heap, in what is received, and in the experts' output.
  const int64_t rows = int64_t{num_ranks} * std::min(topk, num_experts / num_ranks) + topk;
  const int64_t gpu_bytes = rows * (3 * row_bytes + kBytesPerRow);
  return static_cast<int>(
      std::clamp<int64_t>(std::min(limits.step_bytes / step_bytes / num_ranks,  //
                                   limits.gpu_bytes / gpu_bytes),
                          1, kMaxTokensPerRank));
}

// What is sent and received, and in which order it is added, for a strategy that has the choice.
void AddFormats(Dice& dice, int hidden, int most_alignment, std::vector<std::string>& flags) {
  constexpr std::array<absl::string_view, 3> kScales = {"float32", "power_of_two", "ue8m0"};
  const bool fp8 = hidden % 16 == 0 && dice.OneIn(3);
  const bool tokens = dice.OneIn(4);
  const int alignment = !tokens && dice.OneIn(3) ? dice.OneOf({2, 8, 64}) : 1;
  // Rows of tokens have been added up in one order already.
  const auto order = static_cast<CombineOrder>(tokens ? dice.OneOf({0, 2}) : dice.Uniform(0, 2));
  flags.insert(flags.end(),
               {absl::StrCat("--format=", fp8 ? "fp8" : "same"),
                absl::StrCat("--scales=", dice.OneOf(absl::MakeConstSpan(kScales))),
                absl::StrCat("--received=", tokens ? "deduplicated" : "packed"),
                absl::StrCat("--duplicates=", !tokens && dice.OneIn(4) ? "index" : "fill"),
                absl::StrCat("--expert_alignment=", std::min(alignment, most_alignment)),
                absl::StrCat("--combine_order=", CombineOrderName(order)),
                absl::StrCat("--combine_method=",
                             CombineMethodName(static_cast<CombineMethod>(dice.Uniform(0, 2)))),
                absl::StrCat("--row_copies=", dice.OneIn(4) ? "bulk" : "auto"),
                absl::StrCat("--host_totals=", dice.OneIn(4) ? "true" : "false"),
                absl::StrCat("--cached=", dice.OneIn(4) ? "true" : "false")});
}

// What a strategy without it takes.
constexpr std::array<absl::string_view, 9> kPlainFormats = {
    "--format=same",     "--scales=float32",     "--received=packed",
    "--duplicates=fill", "--expert_alignment=1", "--combine_method=push",
    "--row_copies=auto", "--host_totals=false",  "--cached=false"};

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

absl::Span<const StrategyVariant> StrategyVariants() { return kVariants; }

std::vector<std::string> RandomShape(uint64_t seed, uint32_t index, int num_ranks,
                                     const ShapeLimits& limits) {
  Dice dice(seed, index);
  std::vector<std::string> flags;
  const auto add = [&flags](absl::string_view name, const auto& value) {
    flags.push_back(absl::StrCat("--", name, "=", value));
    return value;
  };
  const auto add_switch = [&](absl::string_view name, bool value) {
    add(name, value ? "true" : "false");
  };

  const StrategyVariant& variant = dice.OneOf(StrategyVariants());
  const bool low_latency = variant.strategy == Strategy::kLowLatency;

  add("ranks", num_ranks);
  const int most_local = (low_latency ? kMaxLowLatencyExperts : kMaxExperts) / num_ranks;
  const int num_local = dice.OneIn(2) ? dice.OneOf({1, 2, 8, 32}) : dice.LogUniform(1, most_local);
  const int num_experts = add("experts", num_ranks * std::min(num_local, most_local));
  const int most_topk = std::min(kMaxTopk, num_experts);
  const int topk = add("topk", std::min(most_topk, dice.OneIn(2) ? dice.OneOf({1, 2, 4, 6, 8})
                                                                 : dice.Uniform(1, most_topk)));
  const int most_hidden = low_latency ? kMaxLowLatencyHidden : kMaxHidden;
  const int hidden = add("hidden", dice.OneIn(4) ? dice.OneOf({2048, 2880, 4096, 6144, 7168})
                                                 : 8 * dice.LogUniform(1, most_hidden / 8));
  const int max_tokens =
      add("max_tokens",
          dice.LogUniform(1, std::min(MostTokens(limits, num_ranks, num_experts, topk, hidden),
                                      low_latency ? kMaxLowLatencyTokens : kMaxTokensPerRank)));
  // Without numbers they are drawn from the shape's seed, from 1 to one less than the most.
  const std::string tokens = absl::StrJoin(DrawTokens(dice, num_ranks, max_tokens), ",");
  add("tokens", max_tokens > 1 && dice.OneIn(8) ? "" : tokens);
  add("dtype", DTypeName(dice.OneIn(2) ? DType::kFloat16 : DType::kBFloat16));
  add("routing", DrawRouting(dice, num_experts, topk));
  add("drop", dice.OneIn(2) ? 0.0 : dice.OneOf({1, 10, 50, 90, 100}) / 100.0);
  add("expert", ExpertKindName(dice.OneIn(2) ? ExpertKind::kId : ExpertKind::kRank));
  add_switch("fuse_expert", dice.OneIn(2));

  add("strategy", StrategyName(variant.strategy));
  add("slots", SlotsName(variant.slots));
  add("flags", FlagsName(variant.flags));
  const int blocks =
      add("blocks", dice.OneIn(2) ? 0 : dice.LogUniform(2, std::max(2, limits.compute_units)));
  add("send_blocks", blocks == 0 || dice.OneIn(2) ? 0 : dice.Uniform(1, blocks - 1));
  const int waves =
      add("waves", dice.OneIn(2) ? 0 : dice.Uniform(1, kMostThreads / limits.wave_size));
  const int most_waves = waves > 0 ? waves : kMostThreads / limits.wave_size;
  add("send_waves", dice.OneIn(2) ? 0 : dice.Uniform(1, most_waves));
  add("combine_send_waves", dice.OneIn(2) ? 0 : dice.Uniform(1, most_waves));
  add("max_blocks", dice.OneIn(2) ? 0 : dice.LogUniform(std::max(2, blocks), 1024));
  if (variant.strategy == Strategy::kHighThroughput) {
    const int64_t most_alignment = limits.gpu_bytes / (6 * int64_t{hidden} * num_experts);
    AddFormats(dice, hidden,
               static_cast<int>(std::clamp<int64_t>(most_alignment, 1, kMaxExpertAlignment)),
               flags);
  } else {
    for (const absl::string_view flag : kPlainFormats) flags.emplace_back(flag);
    // direct adds in one order.
    add("combine_order",
        CombineOrderName(low_latency ? static_cast<CombineOrder>(dice.Uniform(0, 2))
                                     : CombineOrder::kFlat));
  }
  add("row_parts", dice.OneIn(2) ? 0 : dice.LogUniform(1, kMaxRowParts));
  add("align", AlignName(dice.OneIn(4) ? Align::kDevice : Align::kHost));
  // A warm-up step calls for many more right behind each other, which are not verified, before each
  // series of timed ones.
  add("warmup", dice.OneIn(8) ? 1 : 0);
  add("iters", dice.LogUniform(1, 4));
  add("seed", dice.Uniform(0, 999'999));
  return flags;
}

}  // namespace octet
