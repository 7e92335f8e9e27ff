#include "tools/commands/operation.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(
    std::string, operation, "step",
    "tune: step, launch shapes and strategies of dispatch and combine; gemm, the tile shape of\n"
    "a grouped product, which --rows, --n, --k, --dtype and --epilogue describe. trace: step;\n"
    "gemm, the tiles of such a product. perf: step; dispatch_gemm or gemm_combine, with the\n"
    "experts' products");

namespace octet {

absl::Span<const EnumEntry<Operation>> EnumTable(Operation /*unused*/) {
  static constexpr EnumEntry<Operation> kTable[] = {{Operation::kStep, "step"},
                                                    {Operation::kGemm, "gemm"}};
  return kTable;
}

absl::StatusOr<Operation> ParseOperation(const CommandLine& line,
                                         absl::Span<const absl::string_view> step_flags,
                                         absl::Span<const absl::string_view> gemm_flags) {
  const std::string name = absl::GetFlag(FLAGS_operation);
  const absl::StatusOr<Operation> operation = ParseEnum<Operation>("operation", name);
  if (!operation.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", operation.status().message()));
  }
  const bool gemm = *operation == Operation::kGemm;
  for (const absl::string_view flag : gemm ? step_flags : gemm_flags) {
    if (!line.Given(flag) || absl::c_linear_search(gemm ? gemm_flags : step_flags, flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " does not go with --operation=", name));
  }
  return *operation;
}

}  // namespace octet
