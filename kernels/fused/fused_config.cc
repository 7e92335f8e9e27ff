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

absl::Status CheckEp(const EpConfig& ep) {
  if (ep.output != Output::kPackedExperts) {
    return Refuse("ep.output", EnumName(ep.output), "the products need packed rows");
  }
  const Duplicates duplicates = ep.high_throughput.duplicates;
  if (duplicates != Duplicates::kFill) {
    return Refuse("ep.high_throughput.duplicates", EnumName(duplicates),
                  "the products need a row for each choice, fill");
  }
  const DispatchFormat format = ep.dispatch_format;
  if (format == DispatchFormat::kSame) return absl::OkStatus();
  if (!ReceivesFp8(ep)) {
    return Refuse("ep.dispatch_format", EnumName(format), "it must be same, fp8 or quantized_fp8");
  }
  if (ep.scale_group != kGemmScaleGroup) {
    return Refuse("ep.scale_group", absl::StrCat(ep.scale_group),
                  absl::StrCat("products of FP8 rows need ", kGemmScaleGroup));
  }
  if (ep.dtype != DType::kBFloat16) {
    return Refuse("ep.dtype", EnumName(ep.dtype), "products of FP8 rows are bf16");
  }
  constexpr int kFp8Unit = 16;  // a row's bytes are whole vectors
  if (ep.hidden % kFp8Unit != 0) {
    return Refuse("ep.hidden", absl::StrCat(ep.hidden),
                  absl::StrCat("products of FP8 rows need a multiple of ", kFp8Unit));
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
  if (config.second_format == GemmFormat::kSame) return absl::OkStatus();
  if (config.ep.dtype != DType::kBFloat16) {
    return Refuse("ep.dtype", EnumName(config.ep.dtype), "products of FP8 rows are bf16");
  }
  if (IsOneKernel(config.gemm_combine)) {
    return Refuse("gemm_combine", EnumName(config.gemm_combine),
                  "with the second_format fp8 it must be auto or none");
  }
  return absl::OkStatus();
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
  const bool fp8 = config.second_format == GemmFormat::kFp8;
  const int unit = fp8 ? 16 : 8;
  if (config.intermediate < unit || config.intermediate % unit != 0) {
    return Refuse("intermediate", absl::StrCat(config.intermediate),
                  absl::StrCat("it must be a positive multiple of ", unit,
                               fp8 ? " with the second_format fp8" : ""));
  }
  OCTET_RETURN_IF_ERROR(CheckSecondFormat(config));
  OCTET_RETURN_IF_ERROR(CheckTuning("dispatch_gemm_tuning", config.dispatch_gemm_tuning));
  OCTET_RETURN_IF_ERROR(CheckTuning("gemm_combine_tuning", config.gemm_combine_tuning));
  if (config.weights_in == WeightsIn::kFirstProduct &&
      !Has(config.ep.strategy, &StrategyInfo::keeps_layouts)) {
    return Refuse("weights_in", EnumName(config.weights_in),
                  NeedsStrategy(config.ep, &StrategyInfo::keeps_layouts));
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
  return absl::StrCat(TextOf(config.ep, rails), ", intermediate ", config.intermediate,
                      ", activation ", EnumName(config.activation), ", second_format ",
                      EnumName(config.second_format), ", weights_in ", EnumName(config.weights_in),
                      ", dispatch_gemm ", EnumName(config.dispatch_gemm), ", gemm_combine ",
                      EnumName(config.gemm_combine));
}

}  // namespace octet
