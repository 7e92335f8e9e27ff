#include "tools/commands/fused_options.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "octet/enum_names.h"
#include "octet/fused_experts.h"
#include "runtime/status_macros.h"

ABSL_FLAG(int32_t, intermediate, 2048,
          "I, columns of the experts' intermediate rows: with dispatch_gemm the product has I\n"
          "columns, or gate and up of I each; with gemm_combine I columns are multiplied");
ABSL_FLAG(std::string, fusion, "all",
          "how the kernels of a call are put together, a list: none (always measured), tiles,\n"
          "serial (of gemm_combine), auto, all; layer: one of them, auto unless it is given");
ABSL_FLAG(std::string, weights_in, "combine",
          "where the choices' weights are multiplied in: combine, first_product");
ABSL_DECLARE_FLAG(std::string, epilogue);

namespace octet {
namespace {

absl::StatusOr<std::vector<FusedChoice>> ParseWays(Operation operation) {
  std::vector<FusedChoice> ways;
  for (const absl::string_view name : absl::StrSplit(absl::GetFlag(FLAGS_fusion), ',')) {
    if (name == "all") {
      ways.push_back({.fusion = Fusion::kNone});
      ways.push_back({.fusion = Fusion::kTiles});
      if (operation == Operation::kGemmCombine) ways.push_back({.fusion = Fusion::kSerial});
      ways.push_back({.fusion = Fusion::kAuto});
      continue;
    }
    const absl::StatusOr<Fusion> fusion = ParseEnum<Fusion>("fusion", name);
    if (!fusion.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", fusion.status().message(), ", all"));
    }
    ways.push_back({.fusion = *fusion});
  }
  return ways;
}

}  // namespace

std::vector<absl::string_view> FlagsOfFused(Operation operation,
                                            absl::Span<const absl::string_view> step_flags) {
  static constexpr absl::string_view kOfStepsAlone[] = {
      "graph",       "align",  "expert",         "fuse_expert", "received",  "duplicates",
      "host_totals", "cached", "failure_policy", "statistics",  "overlap_us"};
  std::vector<absl::string_view> flags;
  absl::c_copy_if(step_flags, std::back_inserter(flags), [](absl::string_view flag) {
    return !absl::c_linear_search(kOfStepsAlone, flag);
  });
  absl::c_copy_if(kFusedFlags, std::back_inserter(flags), [operation](absl::string_view flag) {
    return flag != "epilogue" || operation == Operation::kDispatchGemm;
  });
  return flags;
}

absl::StatusOr<FusedRunOptions> ParseFusedOptions(const CommandLine& line, Operation operation) {
  FusedRunOptions fused;
  fused.operation =
      operation == Operation::kDispatchGemm ? FusedCall::kDispatchGemm : FusedCall::kGemmCombine;
  fused.intermediate = absl::GetFlag(FLAGS_intermediate);
  if (fused.intermediate <= 0 || fused.intermediate % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--intermediate=", fused.intermediate, " is not a positive multiple of 8"));
  }
  if (operation == Operation::kGemmCombine) {
    fused.activation = GemmActivation::kNone;
  } else if (line.Given("epilogue")) {
    const absl::StatusOr<GemmActivation> activation =
        ParseEnum<GemmActivation>("epilogue", absl::GetFlag(FLAGS_epilogue));
    if (!activation.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", activation.status().message()));
    }
    fused.activation = *activation;
  }
  OCTET_ASSIGN_OR_RETURN(fused.weights_in,
                         ParseEnum<WeightsIn>("weights_in", absl::GetFlag(FLAGS_weights_in)));
  OCTET_ASSIGN_OR_RETURN(fused.ways, ParseWays(operation));
  return fused;
}

}  // namespace octet
