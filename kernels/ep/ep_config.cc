#include "octet/ep_config.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/ep/config_checks.h"
#include "kernels/ep/physical.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/peers.h"

namespace octet {
namespace {

constexpr DispatchFormatInfo kDispatchFormats[] = {
    {DispatchFormat::kSame, "same", GemmFormat::kSame, GemmFormat::kSame, false},
    {DispatchFormat::kFp8, "fp8", GemmFormat::kFp8, GemmFormat::kFp8, false},
    {DispatchFormat::kBytes, "bytes", GemmFormat::kSame, GemmFormat::kSame, true},
    {DispatchFormat::kQuantizedFp8, "quantized_fp8", GemmFormat::kSame, GemmFormat::kFp8, false}};

// Returns an error unless `supported(*the strategy)` contains `value`, and names the strategies
// that support it.
template <typename T>
absl::Status CheckSupported(const EpConfig& config, absl::string_view field, T value,
                            absl::Span<const T> StrategyInfo::* supported) {
  if (absl::c_linear_search(InfoOf(config.strategy).*supported, value)) return absl::OkStatus();
  std::vector<absl::string_view> others;
  for (const StrategyInfo* info : StrategyInfos()) {
    if (absl::c_linear_search(info->*supported, value)) others.push_back(info->name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " ", EnumName(value), " needs the strategy ",
                   absl::StrJoin(others, " or "), ", not ", EnumName(config.strategy)));
}

// Returns an error if an option of a strategy other than the configuration's is set.
absl::Status CheckOptions(const EpConfig& config) {
  for (const StrategyInfo* info : StrategyInfos()) {
    if (info->strategy == config.strategy || info->own_options == nullptr) continue;
    const std::vector<absl::string_view> names = info->own_options(config);
    if (names.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(absl::StrJoin(names, ", "), names.size() == 1 ? " needs" : " need",
                     " the strategy ", info->name, ", not ", EnumName(config.strategy)));
  }
  return absl::OkStatus();
}

// Checks the requirements of the configuration's strategy, which is not kAuto.
absl::Status ValidateStrategy(const EpConfig& config) {
  const DispatchFormatInfo& rows = InfoOf(config.dispatch_format);
  if (rows.sent != rows.received) {
    absl::Status status = ValidateQuantized(config);
    if (!status.ok()) return status;
  }
  const StrategyInfo& info = InfoOf(config.strategy);
  for (const absl::Status& status :
       {CheckOptions(config),
        CheckSupported(config, "dispatch_format", config.dispatch_format, &StrategyInfo::formats),
        CheckSupported(config, "output", config.output, &StrategyInfo::outputs)}) {
    if (!status.ok()) return status;
  }
  for (const absl::Status& status :
       {CheckRange("max_tokens_per_rank", config.max_tokens_per_rank, 1, info.most_tokens),
        CheckRange("num_experts", config.num_experts, 1, info.most_experts),
        CheckRange("hidden", config.hidden, 8, info.most_hidden)}) {
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(info.name, ": ", status.message()));
    }
  }
  return info.validate(config);
}

// Checks that some strategy supports the configuration; the error says why each of them does not.
absl::Status ValidateAuto(const EpConfig& config) {
  std::string reasons;
  for (const Strategy strategy : AllStrategies()) {
    EpConfig named = config;
    named.strategy = strategy;
    const absl::Status status = ValidateStrategy(named);
    if (status.ok()) return status;
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", status.message());
  }
  return absl::InvalidArgumentError(absl::StrCat("no strategy supports all of it: ", reasons));
}

absl::Status ValidatePlaced(const EpConfig& config, int num_ranks) {
  const int most_topk = std::min(kMaxTopk, config.num_experts);
  for (const absl::Status& status :
       {CheckPlacement(config, num_ranks), CheckRange("topk", config.topk, 1, most_topk)}) {
    if (!status.ok()) return status;
  }
  const EpConfig physical = PhysicalConfig(config);
  absl::Status status = Validate(physical, num_ranks);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(
      "with the ", physical.num_experts, " slots of the placement as experts: ", status.message()));
}

}  // namespace

absl::Span<const EnumEntry<Strategy>> EnumTable(Strategy) {
  static const auto& table = *[] {
    auto* entries = new std::vector<EnumEntry<Strategy>>{{Strategy::kAuto, "auto"}};
    for (const StrategyInfo* info : StrategyInfos()) {
      entries->push_back({info->strategy, info->name});
    }
    return entries;
  }();
  return table;
}

absl::Span<const EnumEntry<Slots>> EnumTable(Slots) {
  static constexpr EnumEntry<Slots> kTable[] = {{Slots::kPrefix, "prefix"},
                                                {Slots::kAtomic, "atomic"}};
  return kTable;
}

absl::Span<const EnumEntry<Flags>> EnumTable(Flags) {
  static constexpr EnumEntry<Flags> kTable[] = {{Flags::kToken, "token"},
                                                {Flags::kSource, "source"}};
  return kTable;
}

absl::Span<const EnumEntry<CombineOrder>> EnumTable(CombineOrder) {
  static constexpr EnumEntry<CombineOrder> kTable[] = {{CombineOrder::kAuto, "auto"},
                                                       {CombineOrder::kFlat, "flat"},
                                                       {CombineOrder::kPerRank, "per_rank"},
                                                       {CombineOrder::kPerNode, "per_node"}};
  return kTable;
}

const DispatchFormatInfo& InfoOf(DispatchFormat format) {
  return *std::find_if(std::begin(kDispatchFormats), std::end(kDispatchFormats) - 1,
                       [format](const auto& info) { return info.format == format; });
}

absl::Span<const EnumEntry<DispatchFormat>> EnumTable(DispatchFormat) {
  static constexpr auto kTable = [] {
    std::array<EnumEntry<DispatchFormat>, std::size(kDispatchFormats)> table = {};
    std::transform(std::begin(kDispatchFormats), std::end(kDispatchFormats), table.begin(),
                   [](const DispatchFormatInfo& info) {
                     return EnumEntry<DispatchFormat>{info.format, info.name};
                   });
    return table;
  }();
  return kTable;
}

absl::Span<const EnumEntry<ScaleFormat>> EnumTable(ScaleFormat) {
  static constexpr EnumEntry<ScaleFormat> kTable[] = {{ScaleFormat::kFloat32, "float32"},
                                                      {ScaleFormat::kPowerOfTwo, "power_of_two"},
                                                      {ScaleFormat::kUe8m0, "ue8m0"}};
  return kTable;
}

absl::Span<const EnumEntry<Output>> EnumTable(Output) {
  static constexpr EnumEntry<Output> kTable[] = {{Output::kPackedExperts, "packed"},
                                                 {Output::kDeduplicated, "deduplicated"},
                                                 {Output::kExpertMajor, "expert_major"},
                                                 {Output::kRankMajor, "rank_major"}};
  return kTable;
}

absl::Span<const EnumEntry<Duplicates>> EnumTable(Duplicates) {
  static constexpr EnumEntry<Duplicates> kTable[] = {{Duplicates::kFill, "fill"},
                                                     {Duplicates::kIndex, "index"}};
  return kTable;
}

absl::Span<const EnumEntry<CombineMethod>> EnumTable(CombineMethod) {
  static constexpr EnumEntry<CombineMethod> kTable[] = {{CombineMethod::kAuto, "auto"},
                                                        {CombineMethod::kPush, "push"},
                                                        {CombineMethod::kPull, "pull"}};
  return kTable;
}

absl::Span<const EnumEntry<RowCopies>> EnumTable(RowCopies) {
  static constexpr EnumEntry<RowCopies> kTable[] = {
      {RowCopies::kAuto, "auto"}, {RowCopies::kVectors, "vectors"}, {RowCopies::kBulk, "bulk"}};
  return kTable;
}

absl::Span<const EnumEntry<FailurePolicy>> EnumTable(FailurePolicy) {
  static constexpr EnumEntry<FailurePolicy> kTable[] = {{FailurePolicy::kAbort, "abort"},
                                                        {FailurePolicy::kMask, "mask"}};
  return kTable;
}

size_t EpConfig::dtype_row_bytes() const {
  return static_cast<size_t>(hidden) * InfoOf(dtype).bytes;
}

size_t EpConfig::dispatch_row_bytes() const {
  const DispatchFormatInfo& info = InfoOf(dispatch_format);
  if (info.bytes) return static_cast<size_t>(high_throughput.row_bytes);
  return FormatOf(dtype, info.sent).Bytes(static_cast<size_t>(hidden));
}

size_t EpConfig::received_row_bytes() const {
  const DispatchFormatInfo& info = InfoOf(dispatch_format);
  if (info.received == info.sent) return dispatch_row_bytes();
  return (FormatOf(dtype, info.received).Bytes(static_cast<size_t>(hidden)) + 15) / 16 * 16;
}

int EpConfig::max_rows(int num_ranks) const {
  const int tokens = num_ranks * max_tokens_per_rank;
  const int num_local = num_local_experts(num_ranks);
  if (output == Output::kExpertMajor) return tokens * num_local;
  const int most =
      tokens * std::min(topk, num_local) + num_local * (high_throughput.expert_alignment - 1);
  return capacity_rows > 0 ? std::min(capacity_rows, most) : most;
}

int EpConfig::expert_out_rows(int num_ranks) const {
  return output == Output::kDeduplicated ? num_ranks * max_tokens_per_rank : max_rows(num_ranks);
}

int EpConfig::scale_words() const {
  if (!FormatOf(dtype, received_format()).has_scales()) return 0;
  return Fp8ScaleWords(hidden, scale_group, scale_format);
}

int EpConfig::x_scale_words() const {
  return FormatOf(dtype, InfoOf(dispatch_format).sent).has_scales() ? scale_words() : 0;
}

GemmFormat EpConfig::received_format() const { return InfoOf(dispatch_format).received; }

absl::Status Validate(const EpConfig& config, int num_ranks) {
  if (!config.placement.empty()) return ValidatePlaced(config, num_ranks);
  for (const absl::Status& status :
       {CheckRange("num_ranks", num_ranks, 1, kMaxRanks),
        CheckRange("num_experts", config.num_experts, 1, kMaxExperts),
        CheckRange("hidden", config.hidden, 8, kMaxHidden),
        CheckRange("max_tokens_per_rank", config.max_tokens_per_rank, 1, kMaxTokensPerRank)}) {
    if (!status.ok()) return status;
  }
  if (config.num_experts % num_ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_experts is ", config.num_experts,
                                                   "; it must be divisible by the ", num_ranks,
                                                   " ranks"));
  }
  if (config.loads.window < 0 || config.loads.window > kMaxLoadWindow ||
      (config.loads.window > 0 && !config.loads.count)) {
    return absl::InvalidArgumentError(absl::StrCat("loads.window is ", config.loads.window,
                                                   "; it must be from 0 to ", kMaxLoadWindow,
                                                   ", and 0 without loads.count"));
  }
  if (config.capacity_rows < 0) {
    return absl::InvalidArgumentError(absl::StrCat("capacity_rows is ", config.capacity_rows,
                                                   "; it must be 0 or a number of rows"));
  }
  if (config.hidden % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden is ", config.hidden, "; it must be a multiple of 8"));
  }
  if (config.topk < 1 || config.topk > std::min(kMaxTopk, config.num_experts)) {
    return OutOfRange("topk", config.topk, 1, std::min(kMaxTopk, config.num_experts));
  }
  if (config.combine_order == CombineOrder::kPerNode) {
    return absl::InvalidArgumentError(
        "combine_order is per_node, the order of calls over several nodes; within a node it must "
        "be auto, flat or per_rank");
  }
  const Tuning& tuning = config.tuning;
  if (tuning.row_parts > kMaxRowParts) {
    return OutOfRange("row_parts", tuning.row_parts, 0, kMaxRowParts);
  }
  if (tuning.blocks < 0 || tuning.send_blocks < 0 || tuning.waves_per_block < 0 ||
      tuning.row_parts < 0 || tuning.send_waves < 0 || tuning.combine_send_waves < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tuning is blocks ", tuning.blocks, ", send_blocks ", tuning.send_blocks,
                     ", waves_per_block ", tuning.waves_per_block, ", row_parts ", tuning.row_parts,
                     ", send_waves ", tuning.send_waves, ", combine_send_waves ",
                     tuning.combine_send_waves, "; none may be negative"));
  }
  if (config.max_blocks < 0 || (config.max_blocks > 0 && tuning.blocks > config.max_blocks)) {
    return absl::InvalidArgumentError(absl::StrCat("max_blocks is ", config.max_blocks,
                                                   ", with blocks ", tuning.blocks,
                                                   "; it must be 0 or at least as many"));
  }
  return config.strategy == Strategy::kAuto ? ValidateAuto(config) : ValidateStrategy(config);
}

}  // namespace octet
