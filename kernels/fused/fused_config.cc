#include "kernels/fused/fused_config.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/fused/dispatch_gemm.h"
#include "kernels/fused/products.h"
#include "kernels/nodes/options.h"
#include "octet/enum_names.h"
#include "octet/grouped_gemm.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

absl::Status Refuse(absl::string_view member, absl::string_view value, absl::string_view must) {
  return absl::InvalidArgumentError(
      absl::StrCat("RoutedExpertsConfig::", member, " is ", value, "; ", must));
}

absl::Status CheckDType(const EpConfig& ep, const WeightFormatInfo& operands) {
  const DType needed = operands.dtype.value_or(ep.dtype);
  if (ep.dtype == needed) return absl::OkStatus();
  return Refuse("ep.dtype", EnumName(ep.dtype),
                absl::StrCat("products of ", operands.title, " rows are ", EnumName(needed)));
}

absl::Status CheckEp(const EpConfig& ep) {
  if (ep.output != Output::kPackedExperts) {
    return Refuse("ep.output", EnumName(ep.output), "the products need packed rows");
  }
  const Duplicates duplicates = ep.high_throughput.duplicates;
  if (duplicates != Duplicates::kFill) {
    return Refuse("ep.high_throughput.duplicates", EnumName(duplicates),
                  "the products need a row for each choice, fill");
  }
  const DispatchFormatInfo& format = InfoOf(ep.dispatch_format);
  if (format.bytes) {
    return Refuse("ep.dispatch_format", format.name, "it must be same, fp8 or quantized_fp8");
  }
  const WeightFormatInfo& rows = InfoOf(FormatOf(ep.dtype, format.received));
  const std::string products = absl::StrCat("products of ", rows.title, " rows ");
  if (rows.format.has_scales() && ep.scale_group != rows.format.block_columns) {
    return Refuse("ep.scale_group", absl::StrCat(ep.scale_group),
                  absl::StrCat(products, "need ", rows.format.block_columns));
  }
  OCTET_RETURN_IF_ERROR(CheckDType(ep, rows));
  if (ep.hidden % rows.unit() != 0) {
    return Refuse("ep.hidden", absl::StrCat(ep.hidden),
                  absl::StrCat(products, "need a multiple of ", rows.unit()));
  }
  return absl::OkStatus();
}

std::string NeedsStrategy(const EpConfig& ep, bool StrategyInfo::* capability) {
  return absl::StrCat("that needs the strategy ", NamesWith(capability), ", not ",
                      EnumName(ep.strategy));
}

absl::Status CheckTiles(const EpConfig& ep) {
  constexpr absl::string_view kMust = "the dispatch_gemm tiles needs ";
  if (ep.strategy != Strategy::kAuto && !Has(ep.strategy, &StrategyInfo::fuses_products)) {
    return Refuse("ep.strategy", EnumName(ep.strategy),
                  absl::StrCat(kMust, NamesWith(&StrategyInfo::fuses_products)));
  }
  const HighThroughputOptions& options = ep.high_throughput;
  if (options.expert_alignment != 1) {
    return Refuse("ep.high_throughput.expert_alignment", absl::StrCat(options.expert_alignment),
                  absl::StrCat(kMust, "1"));
  }
  if (!options.host_totals) return absl::OkStatus();
  return Refuse("ep.high_throughput.host_totals", "true", absl::StrCat(kMust, "false"));
}

// The rows of a product that scatters are those of combine's order `flat`, where it expects them.
absl::Status CheckEpilogue(const EpConfig& ep) {
  constexpr absl::string_view kMust = "the gemm_combine epilogue needs ";
  if (ep.combine_order != CombineOrder::kAuto && ep.combine_order != CombineOrder::kFlat) {
    return Refuse("ep.combine_order", EnumName(ep.combine_order),
                  absl::StrCat(kMust, "flat; with tiles, sums over a rank's rows leave early"));
  }
  if (ep.combine_method != CombineMethod::kAuto && ep.combine_method != CombineMethod::kPush) {
    return Refuse("ep.combine_method", EnumName(ep.combine_method), absl::StrCat(kMust, "push"));
  }
  return absl::OkStatus();
}

absl::Status CheckSecondFormat(const RoutedExpertsConfig& config) {
  const WeightFormatInfo& operands = InfoOf(FormatOf(config.ep.dtype, config.second_format));
  if (config.intermediate < operands.unit() || config.intermediate % operands.unit() != 0) {
    return Refuse("intermediate", absl::StrCat(config.intermediate),
                  absl::StrCat("it must be a positive multiple of ", operands.unit(),
                               " with the second_format ", EnumName(config.second_format)));
  }
  OCTET_RETURN_IF_ERROR(CheckDType(config.ep, operands));
  if (config.second_fp8_rows && config.second_format != GemmFormat::kMxfp4) {
    return Refuse("second_fp8_rows", "true",
                  absl::StrCat("with the second_format ", EnumName(config.second_format),
                               " it must be false; mxfp4 can have it"));
  }
  if (operands.format.has_scales() && IsOneKernel(config.gemm_combine)) {
    return Refuse("gemm_combine", EnumName(config.gemm_combine),
                  absl::StrCat("with the second_format ", EnumName(config.second_format),
                               " it must be auto or none"));
  }
  return absl::OkStatus();
}

absl::Status CheckFirstFormat(const RoutedExpertsConfig& config) {
  if (config.first_format == GemmFormat::kSame) return absl::OkStatus();
  const WeightFormatInfo& weights = InfoOf(FormatOf(config.ep.dtype, config.first_format));
  if (weights.quantizes_rows) {
    return Refuse("first_format", weights.name,
                  "the rows have these elements as well; it must be same, and ep.dispatch_format "
                  "say so");
  }
  if (config.ep.hidden % weights.unit() != 0) {
    return Refuse("ep.hidden", absl::StrCat(config.ep.hidden),
                  absl::StrCat("it must be a multiple of ", weights.unit(),
                               " with the first_format ", weights.name));
  }
  OCTET_RETURN_IF_ERROR(CheckDType(config.ep, weights));
  if (!IsOneKernel(config.dispatch_gemm)) return absl::OkStatus();
  return Refuse("dispatch_gemm", EnumName(config.dispatch_gemm),
                absl::StrCat("with the first_format ", weights.name, " it must be auto or none"));
}

absl::Status CheckTuning(absl::string_view member, const FusedTuning& tuning) {
  constexpr int kMostPercent = 100;
  constexpr int kMostStages = 2;
  const auto check = [member](absl::string_view field, int value, int most) {
    if (value >= 0 && value <= most) return absl::OkStatus();
    return Refuse(absl::StrCat(member, ".", field), absl::StrCat(value),
                  absl::StrCat("it must be from 0 to ", most));
  };
  if (tuning.tiles.has_value() && !fused::CanFuse(*tuning.tiles)) {
    return Refuse(absl::StrCat(member, ".tiles"), EnumName(*tuning.tiles),
                  "it must be wide or medium");
  }
  OCTET_RETURN_IF_ERROR(check("send_percent", tuning.send_percent, kMostPercent));
  OCTET_RETURN_IF_ERROR(check("fill_percent", tuning.fill_percent, kMostPercent));
  OCTET_RETURN_IF_ERROR(check("combine_percent", tuning.combine_percent, kMostPercent));
  OCTET_RETURN_IF_ERROR(check("stages", tuning.stages, kMostStages));
  return check("row_parts", tuning.row_parts, kMaxRowParts);
}

}  // namespace

bool IsOneKernel(Fusion fusion) { return fusion != Fusion::kAuto && fusion != Fusion::kNone; }

absl::Status CheckFusedConfig(const RoutedExpertsConfig& config) {
  OCTET_RETURN_IF_ERROR(CheckEp(config.ep));
  OCTET_RETURN_IF_ERROR(CheckFirstFormat(config));
  OCTET_RETURN_IF_ERROR(CheckSecondFormat(config));
  OCTET_RETURN_IF_ERROR(CheckTuning("dispatch_gemm_tuning", config.dispatch_gemm_tuning));
  OCTET_RETURN_IF_ERROR(CheckTuning("gemm_combine_tuning", config.gemm_combine_tuning));
  if (config.weights_in == WeightsIn::kFirstProduct &&
      !Has(config.ep.strategy, &StrategyInfo::keeps_layouts)) {
    return Refuse("weights_in", EnumName(config.weights_in),
                  NeedsStrategy(config.ep, &StrategyInfo::keeps_layouts));
  }
  if (config.weights_in == WeightsIn::kFirstProduct && config.swiglu != SwiGlu()) {
    return Refuse("weights_in", EnumName(config.weights_in),
                  "with other parameters of swiglu than the defaults it must be combine");
  }
  if (config.dispatch_gemm == Fusion::kSerial || config.dispatch_gemm == Fusion::kEpilogue) {
    return Refuse("dispatch_gemm", EnumName(config.dispatch_gemm), "only gemm_combine can be");
  }
  if (IsOneKernel(config.gemm_combine) && !Has(config.ep.strategy, &StrategyInfo::fuses_products)) {
    return Refuse("gemm_combine", EnumName(config.gemm_combine),
                  NeedsStrategy(config.ep, &StrategyInfo::fuses_products));
  }
  if (config.gemm_combine == Fusion::kEpilogue) OCTET_RETURN_IF_ERROR(CheckEpilogue(config.ep));
  return config.dispatch_gemm == Fusion::kTiles ? CheckTiles(config.ep) : absl::OkStatus();
}

absl::Status ChooseNoFusion(RoutedExpertsConfig& config) {
  const auto choose = [](absl::string_view member, Fusion& fusion) -> absl::Status {
    if (fusion != Fusion::kAuto && fusion != Fusion::kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat("RoutedExpertsConfig::", member, " is ", EnumName(fusion),
                       "; over several nodes it must be auto or none"));
    }
    fusion = Fusion::kNone;
    return absl::OkStatus();
  };
  OCTET_RETURN_IF_ERROR(choose("dispatch_gemm", config.dispatch_gemm));
  return choose("gemm_combine", config.gemm_combine);
}

std::string TextOf(const RoutedExpertsConfig& config, const RailOptions& rails) {
  return absl::StrCat(
      TextOf(config.ep, rails), ", intermediate ", config.intermediate, ", activation ",
      EnumName(config.activation), ", swiglu ", config.swiglu.alpha, " ", config.swiglu.limit, " ",
      config.swiglu.up_offset, ", first_format ", EnumName(config.first_format), ", second_format ",
      EnumName(config.second_format), ", second_fp8_rows ", config.second_fp8_rows ? "yes" : "no",
      ", weights_in ", EnumName(config.weights_in), ", dispatch_gemm ",
      EnumName(config.dispatch_gemm), ", gemm_combine ", EnumName(config.gemm_combine));
}

}  // namespace octet
