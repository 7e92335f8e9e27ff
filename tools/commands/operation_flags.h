// --operation, which says what `octet perf`, `octet trace` and `octet tune` run, and the flags of
// calls with the experts' products.
#ifndef OCTET_TOOLS_COMMANDS_OPERATION_FLAGS_H_
#define OCTET_TOOLS_COMMANDS_OPERATION_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "tools/commands/command_line.h"
#include "tools/measure/fused/fused_run.h"

namespace octet {

enum class Operation {
  kStep,          // dispatch and combine
  kGemm,          // a grouped product
  kDispatchGemm,  // a dispatch and the experts' first product
  kGemmCombine,   // the experts' second product and a combine
};

absl::Span<const EnumEntry<Operation>> EnumTable(Operation);  // names: octet/enum_names.h

// The values of the flags of calls with products.
struct FusedFlags {
  Operation operation = Operation::kStep;
  int intermediate = 2048;
  std::vector<std::string> fusion = {"all"};
  bool ablation = false;
  WeightsIn weights_in = WeightsIn::kCombine;
};

// Adds --operation. `without_gemm`: kGemm is not one of the command's.
void AddOperationFlag(CommandLine& line, Operation& operation, bool without_gemm = false);

// Adds --intermediate and --weights_in, and --fusion.
void AddFusedFlags(CommandLine& line, FusedFlags& flags);
void AddFusionFlag(CommandLine& line, FusedFlags& flags);

// Returns kInvalidArgument for a flag that was given and belongs to other operations alone.
// `of_gemm`: flags that in this command are kGemm's alone.
absl::Status CheckOperation(const CommandLine& line, Operation operation,
                            absl::Span<const absl::string_view> of_gemm = {});

// Returns what the flags say about calls of their operation, kDispatchGemm or kGemmCombine, but for
// the shape and check_steps. `epilogue`: the value of that flag. Errors are kInvalidArgument, with
// one sentence.
absl::StatusOr<FusedRunOptions> ResolveFused(const CommandLine& line, const FusedFlags& flags,
                                             const std::string& epilogue);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_OPERATION_FLAGS_H_
