// What `octet perf`, `octet trace` and `octet tune` are about: --operation.
#ifndef OCTET_TOOLS_COMMANDS_OPERATION_H_
#define OCTET_TOOLS_COMMANDS_OPERATION_H_

#include <array>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "tools/commands/command_line.h"
#include "tools/commands/gemm_rows.h"

namespace octet {

enum class Operation {
  kStep,          // dispatch and combine
  kGemm,          // a grouped product
  kDispatchGemm,  // a dispatch and the experts' first product
  kGemmCombine,   // the experts' second product and a combine
};

absl::Span<const EnumEntry<Operation>> EnumTable(Operation);  // names: octet/enum_names.h

// The flags of a grouped product that are no step's, and all that describe one and its measurement.
inline constexpr auto kProductFlags =
    std::to_array<absl::string_view>({"rows", "n", "k", "epilogue", "samples"});
inline constexpr auto kMeasuredProductFlags =
    JoinFlags(kGemmRowsFlags, kProductFlags,
              std::to_array<absl::string_view>(
                  {"operation", "output", "dtype", "scales", "iters", "warmup", "seed"}));

// An operation of a command, and the flags that it takes.
struct OperationFlags {
  Operation operation;
  absl::Span<const absl::string_view> flags;
};

// Returns the operation, one of `known`. kInvalidArgument for another one, and for a flag that is
// given but belongs to other operations of `known` alone.
absl::StatusOr<Operation> ParseOperation(const CommandLine& line,
                                         absl::Span<const OperationFlags> known);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_OPERATION_H_
