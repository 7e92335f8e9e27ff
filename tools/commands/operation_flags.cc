#include "tools/commands/operation_flags.h"

#include <array>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"
#include "tools/workload/model_shapes.h"

namespace octet {
namespace {

// Flags that only some operations have; all others go with each operation but kGemm.
constexpr auto kOfStepsAlone = std::to_array<absl::string_view>(
    {"graph", "align", "expert", "fuse_expert", "received", "duplicates", "host_totals", "cached",
     "failure_policy", "statistics", "overlap_us", "placement", "capacity_rows"});
constexpr auto kOfFused =
    std::to_array<absl::string_view>({"intermediate", "fusion", "weights_in"});
constexpr auto kOfDispatchGemm = std::to_array<absl::string_view>({"ablation", "epilogue"});
constexpr auto kOfGemmAlone =
    std::to_array<absl::string_view>({"rows", "n", "k", "samples", "tiles"});
constexpr auto kOfGemm = std::to_array<absl::string_view>(
    {"operation", "output",  "rows",   "n",     "k",      "samples",    "tiles",
     "epilogue",  "experts", "ranks",  "topk",  "tokens", "max_tokens", "routing",
     "drop",      "dtype",   "scales", "iters", "warmup", "seed",       "blocks"});

bool GoesWith(Operation operation, absl::string_view flag) {
  const auto in = [flag](const auto& list) { return absl::c_linear_search(list, flag); };
  switch (operation) {
    case Operation::kGemm:
      return in(kOfGemm);
    case Operation::kStep:
      return !in(kOfFused) && !in(kOfDispatchGemm) && !in(kOfGemmAlone);
    case Operation::kDispatchGemm:
      return !in(kOfStepsAlone) && !in(kOfGemmAlone);
    case Operation::kGemmCombine:
      return !in(kOfStepsAlone) && !in(kOfDispatchGemm) && !in(kOfGemmAlone);
  }
  return false;
}

absl::StatusOr<std::vector<FusedWay>> WaysOf(const CommandLine& line, const FusedFlags& flags) {
  if (flags.ablation) {
    if (!line.Given("fusion")) return FusedAblation();
    return absl::InvalidArgumentError("--ablation and --fusion exclude each other");
  }
  const bool combines = flags.operation == Operation::kGemmCombine;
  std::vector<FusedWay> ways;
  const auto add = [&ways](Fusion fusion) { ways.push_back({.choice = {.fusion = fusion}}); };
  for (const std::string& name : flags.fusion) {
    if (name == "all") {
      add(Fusion::kNone);
      add(Fusion::kTiles);
      if (combines) add(Fusion::kSerial);
      if (combines) add(Fusion::kEpilogue);
      add(Fusion::kAuto);
      continue;
    }
    const absl::StatusOr<Fusion> fusion = ParseEnum<Fusion>("--fusion", name);
    if (!fusion.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(fusion.status().message(), ", all"));
    }
    add(*fusion);
  }
  return ways;
}

}  // namespace

absl::Span<const EnumEntry<Operation>> EnumTable(Operation /*unused*/) {
  static constexpr EnumEntry<Operation> kTable[] = {{Operation::kStep, "step"},
                                                    {Operation::kGemm, "gemm"},
                                                    {Operation::kDispatchGemm, "dispatch_gemm"},
                                                    {Operation::kGemmCombine, "gemm_combine"}};
  return kTable;
}

void AddOperationFlag(CommandLine& line, Operation& operation, bool without_gemm) {
  if (without_gemm) {
    line.Add(
        "operation",
        ValueOf(operation, {Operation::kStep, Operation::kDispatchGemm, Operation::kGemmCombine}),
        "step, dispatch and combine; dispatch_gemm or gemm_combine, one of them with the\n"
        "experts' product");
  } else {
    line.Add("operation", operation,
             "step, dispatch and combine; dispatch_gemm or gemm_combine, one of them with the\n"
             "experts' product; gemm, a grouped product on the first GPU, which --rows, --n, --k,\n"
             "--dtype and --epilogue describe");
  }
}

void AddFusedFlags(CommandLine& line, FusedFlags& flags) {
  line.Add("intermediate", flags.intermediate,
           "I, columns of the experts' intermediate rows: with dispatch_gemm the product has I\n"
           "columns, or gate and up of I each; with gemm_combine I columns are multiplied",
           absl::StrCat(kSmallSizes.intermediate));
  line.Add("weights_in", flags.weights_in,
           "where the choices' weights are multiplied in: combine, first_product");
}

void AddFusionFlag(CommandLine& line, FusedFlags& flags) {
  line.Add("fusion", flags.fusion,
           "how the kernels of a call are put together, a list: none (always measured), tiles,\n"
           "serial and epilogue (of gemm_combine), auto, all");
}

absl::Status CheckOperation(const CommandLine& line, Operation operation,
                            absl::Span<const absl::string_view> of_gemm) {
  for (const CommandLine::Flag& flag : line.flags()) {
    const bool belongs =
        GoesWith(operation, flag.name) &&
        (operation == Operation::kGemm || !absl::c_linear_search(of_gemm, flag.name));
    if (belongs || !line.Given(flag.name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag.name, " does not go with --operation=", EnumName(operation)));
  }
  return absl::OkStatus();
}

absl::StatusOr<FusedRunOptions> ResolveFused(const CommandLine& line, const FusedFlags& flags,
                                             const std::string& epilogue) {
  FusedRunOptions fused = {.intermediate = flags.intermediate, .weights_in = flags.weights_in};
  const bool combines = flags.operation == Operation::kGemmCombine;
  fused.operation = combines ? FusedCall::kGemmCombine : FusedCall::kDispatchGemm;
  if (fused.intermediate <= 0 || fused.intermediate % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--intermediate=", fused.intermediate, " is not a positive multiple of 8"));
  }
  if (combines) {
    fused.activation = GemmActivation::kNone;
  } else if (line.Given("epilogue")) {
    OCTET_ASSIGN_OR_RETURN(fused.activation, ParseEnum<GemmActivation>("--epilogue", epilogue));
  }
  OCTET_ASSIGN_OR_RETURN(fused.ways, WaysOf(line, flags));
  return fused;
}

}  // namespace octet
