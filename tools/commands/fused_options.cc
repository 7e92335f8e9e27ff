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
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(int32_t, intermediate, 2048,
          "I, columns of the experts' intermediate rows: with dispatch_gemm the product has I\n"
          "columns, or gate and up of I each; with gemm_combine I columns are multiplied");
ABSL_FLAG(std::string, fusion, "all",
          "how the kernels of a call are put together, a list: none (always measured), tiles,\n"
          "serial and epilogue (of gemm_combine), auto, all; layer: one of them, auto unless it\n"
          "is given");
ABSL_FLAG(bool, ablation, false,
          "perf --operation=dispatch_gemm: tiles as they are, without copies of rows (1-stage),\n"
          "sent by-token, with tiles that wait for all rows of their expert (by-expert), and\n"
          "with all three (plain), instead of --fusion");
ABSL_FLAG(std::string, weights_in, "combine",
          "where the choices' weights are multiplied in: combine, first_product");
ABSL_DECLARE_FLAG(std::string, epilogue);

namespace octet {
namespace {

absl::StatusOr<std::vector<FusedWay>> ParseWays(const CommandLine& line, Operation operation) {
  if (absl::GetFlag(FLAGS_ablation)) {
    if (!line.Given("fusion")) return FusedAblation();
    return absl::InvalidArgumentError("--ablation and --fusion exclude each other");
  }
  const bool combines = operation == Operation::kGemmCombine;
  std::vector<FusedWay> ways;
  const auto add = [&ways](Fusion fusion) { ways.push_back({.choice = {.fusion = fusion}}); };
  for (const absl::string_view name : absl::StrSplit(absl::GetFlag(FLAGS_fusion), ',')) {
    if (name == "all") {
      add(Fusion::kNone);
      add(Fusion::kTiles);
      if (combines) add(Fusion::kSerial);
      if (combines) add(Fusion::kEpilogue);
      add(Fusion::kAuto);
      continue;
    }
    const absl::StatusOr<Fusion> fusion = ParseEnum<Fusion>("fusion", name);
    if (!fusion.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", fusion.status().message(), ", all"));
    }
    add(*fusion);
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
    const bool of_dispatch = flag == "epilogue" || flag == "ablation";
    return !of_dispatch || operation == Operation::kDispatchGemm;
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
  OCTET_ASSIGN_OR_RETURN(fused.ways, ParseWays(line, operation));
  return fused;
}

}  // namespace octet
