#include "tools/commands/operation.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

ABSL_FLAG(
    std::string, operation, "step",
    "step, dispatch and combine; dispatch_gemm or gemm_combine, one of them with the experts'\n"
    "product; gemm, a grouped product on the first GPU, which --rows, --n, --k, --dtype and\n"
    "--epilogue describe. perf has all but gemm, tune and trace have all");

namespace octet {

absl::Span<const EnumEntry<Operation>> EnumTable(Operation /*unused*/) {
  static constexpr EnumEntry<Operation> kTable[] = {{Operation::kStep, "step"},
                                                    {Operation::kGemm, "gemm"},
                                                    {Operation::kDispatchGemm, "dispatch_gemm"},
                                                    {Operation::kGemmCombine, "gemm_combine"}};
  return kTable;
}

absl::StatusOr<Operation> ParseOperation(const CommandLine& line,
                                         absl::Span<const OperationFlags> known) {
  const std::string name = absl::GetFlag(FLAGS_operation);
  const auto chosen = absl::c_find_if(
      known, [&](const OperationFlags& each) { return EnumName(each.operation) == name; });
  if (chosen == known.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--operation '", name, "' is not one of ",
                     absl::StrJoin(known, ", ", [](std::string* out, const OperationFlags& each) {
                       absl::StrAppend(out, EnumName(each.operation));
                     })));
  }
  for (const OperationFlags& other : known) {
    for (const absl::string_view flag : other.flags) {
      if (!line.Given(flag) || absl::c_linear_search(chosen->flags, flag)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " does not go with --operation=", name));
    }
  }
  return chosen->operation;
}

}  // namespace octet
