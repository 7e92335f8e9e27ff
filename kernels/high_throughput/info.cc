#include "kernels/high_throughput/info.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/base/control_memory.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/ep/config_checks.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/high_throughput/high_throughput.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/high_throughput/sites.h"
#include "octet/ep_config.h"
#include "octet/node_failure.h"

namespace octet::high_throughput {
namespace {

constexpr std::array<TuningField, 6> kTuningFields = {
    {{"blocks", &Tuning::blocks},
     {"waves", &Tuning::waves_per_block},
     {"send_waves", &Tuning::send_waves},
     {"combine_send_waves", &Tuning::combine_send_waves},
     {"row_parts", &Tuning::row_parts},
     {"row_copies"}}};

constexpr std::array<Variant, 1> kVariants = {};

constexpr std::array kFormats = {DispatchFormat::kSame, DispatchFormat::kFp8,
                                 DispatchFormat::kBytes};
constexpr std::array kOutputs = {Output::kPackedExperts, Output::kDeduplicated};

std::vector<absl::string_view> OwnOptions(const EpConfig& config) {
  const HighThroughputOptions plain;
  const HighThroughputOptions& options = config.high_throughput;
  std::vector<absl::string_view> names;
  AddIfSet("duplicates", options.duplicates, plain.duplicates, names);
  AddIfSet("expert_alignment", options.expert_alignment, plain.expert_alignment, names);
  AddIfSet("row_bytes", options.row_bytes, plain.row_bytes, names);
  AddIfSet("kept_layouts", options.kept_layouts, plain.kept_layouts, names);
  AddIfSet("host_totals", options.host_totals, plain.host_totals, names);
  AddIfSet("row_arrivals", options.row_arrivals, plain.row_arrivals, names);
  return names;
}

std::string RefusedScatterIndex(const NodeFailure& failure, int topk) {
  const auto flat = static_cast<int>(failure.index);
  return absl::StrCat("scatter_idx of token ", flat / topk, ", k ", flat % topk, " is ",
                      static_cast<int64_t>(failure.seen), "; it must be from 0 to ",
                      failure.expected - 1, ", since this rank sends that expert ",
                      failure.expected, " rows");
}

std::string RefusedLayout(const NodeFailure& failure, int /*topk*/) {
  return absl::StrCat(
      "`cached` is of layout ", failure.expected, ", while rank ", failure.peer,
      " dispatches with layout ", failure.seen,
      "; all ranks must give the handle of the same dispatch (layouts are counted from the last "
      "failure on)");
}

std::string RefusedRows(const NodeFailure& failure, int /*topk*/) {
  return absl::StrCat("rank ", failure.index, " would receive ", failure.seen,
                      " rows in this dispatch; capacity_rows is ", failure.expected,
                      ": raise it, or dispatch fewer tokens in a call (nothing has been sent)");
}

// The credit of a dispatch without counts, with the number of the layout beside its epoch.
constexpr SiteInfo LayoutCreditSite() {
  SiteInfo site = DispatchCreditSite(Site::kLayoutCredit);
  site.counted = true;
  return site;
}

constexpr std::array<SiteInfo, 15> kSites = {{
    {.number = static_cast<uint32_t>(Site::kBlockCount),
     .phase = "dispatch-send",
     .flag = "share count of block",
     .counted = true},
    LayoutCreditSite(),
    CountSite(Site::kDispatchCount),
    DispatchPacketSite(Site::kDispatchPacket),
    CombineCreditSite(Site::kCombineCredit),
    CombineRowSite(Site::kCombineRow),
    {.number = static_cast<uint32_t>(Site::kScatterIndexOutOfRange),
     .refused = RefusedScatterIndex},
    {.number = static_cast<uint32_t>(Site::kLayoutsDiffer), .refused = RefusedLayout},
    {.number = static_cast<uint32_t>(Site::kTooManyRows), .refused = RefusedRows},
    {.number = static_cast<uint32_t>(Site::kOrderedBlock),
     .phase = "dispatch-send",
     .flag = "order of block"},
    {.number = static_cast<uint32_t>(Site::kRowArrival),
     .phase = "dispatch-receive",
     .flag = "arrival of row",
     .table = "dispatched rows: arrived / announced by each rank",
     .by_rows = true,
     .counted = true},
    {.number = static_cast<uint32_t>(Site::kReadyGroup),
     .phase = "dispatch-product",
     .flag = "rows of a tile from row"},
    {.number = static_cast<uint32_t>(Site::kReadyExpert),
     .phase = "dispatch-product",
     .flag = "rows of local expert"},
    {.number = static_cast<uint32_t>(Site::kProductPass),
     .phase = "product-combine",
     .flag = "end of column pass"},
    {.number = static_cast<uint32_t>(Site::kProductBlock),
     .phase = "product",
     .flag = "other warps of block"},
}};

absl::Status Validate(const EpConfig& config) {
  const HighThroughputOptions& options = config.high_throughput;
  for (const absl::Status& status :
       {CheckRange("scale_group", config.scale_group, 1, kMaxHidden),
        CheckRange("expert_alignment", options.expert_alignment, 1, kMaxExpertAlignment),
        CheckRange("kept_layouts", options.kept_layouts, 1, kMaxKeptLayouts)}) {
    if (!status.ok()) return status;
  }
  if (config.dispatch_format == DispatchFormat::kBytes) {
    const absl::Status status = CheckRange("row_bytes", options.row_bytes, 16, kMaxRowBytes);
    if (!status.ok()) return status;
  }
  if (config.dispatch_row_bytes() % 16 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a row of dispatch has ",
                                                   config.dispatch_row_bytes(),
                                                   " bytes; they must be a multiple of 16"));
  }
  if (config.capacity_rows > 0 && config.rows_once()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "capacity_rows is ", config.capacity_rows,
        "; it needs a row for each choice, Output::kPackedExperts with Duplicates::kFill"));
  }
  if (options.row_arrivals && (config.rows_once() || options.expert_alignment != 1)) {
    return absl::InvalidArgumentError(
        "row_arrivals needs Output::kPackedExperts with Duplicates::kFill, and an expert_alignment "
        "of 1");
  }
  if (config.output == Output::kDeduplicated) {
    if (config.combine_order == CombineOrder::kFlat) {
      return absl::InvalidArgumentError(
          "deduplicated rows are summed on the experts' rank: combine_order must be per_rank");
    }
    if (options.duplicates != Duplicates::kFill || options.expert_alignment != 1) {
      return absl::InvalidArgumentError(
          "deduplicated rows have neither duplicates nor an expert_alignment");
    }
  }
  return absl::OkStatus();
}

void Choose(EpConfig& config, int num_ranks) {
  if (config.combine_order == CombineOrder::kAuto) config.combine_order = CombineOrder::kPerRank;
  if (config.combine_method != CombineMethod::kAuto) return;
  const int rows_returned =
      config.combine_order == CombineOrder::kFlat ? config.topk : std::min(config.topk, num_ranks);
  // The limit is that of each token, and of all tokens where that is bounded.
  const int rows_received =
      num_ranks * (config.output == Output::kDeduplicated
                       ? 1
                       : std::min(config.topk, config.num_local_experts(num_ranks)));
  const int64_t tokens = config.max_tokens_per_rank;
  const int64_t received = config.capacity_rows > 0
                               ? std::min<int64_t>(tokens * rows_received, config.capacity_rows)
                               : tokens * rows_received;
  config.combine_method =
      2 * tokens * rows_returned < received ? CombineMethod::kPush : CombineMethod::kPull;
}

}  // namespace

constexpr StrategyInfo kInfo = {
    .strategy = Strategy::kHighThroughput,
    .name = "high_throughput",
    .summary = "Computes all offsets first, then sends a token once per rank.",
    .formats = kFormats,
    .outputs = kOutputs,
    .fuses_products = true,
    .keeps_layouts = true,
    .takes_all_units = true,
    .sides = Sides::kWaves,
    .auto_rule = {.order = 2, .most_tokens = kMaxTokensPerRank},
    .variants = kVariants,
    .tuning_fields = kTuningFields,
    .sites = kSites,
    .own_options = OwnOptions,
    .validate = Validate,
    .choose = Choose,
    .row_parts = ChooseRowParts,
    .heap_size = HeapSizeBy<MakeLayout>,
    .list_memory = ListMemoryBy<MakeLayout, ListOwnMemory>,
    .make = MakeOne<HighThroughput>};

}  // namespace octet::high_throughput
