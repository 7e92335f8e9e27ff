// The flags of calls with the experts' products: --operation=dispatch_gemm and gemm_combine.
#ifndef OCTET_TOOLS_COMMANDS_FUSED_OPTIONS_H_
#define OCTET_TOOLS_COMMANDS_FUSED_OPTIONS_H_

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/commands/command_line.h"
#include "tools/commands/operation.h"
#include "tools/measure/fused/fused_run.h"

namespace octet {

inline constexpr auto kFusedFlags = std::to_array<absl::string_view>(
    {"intermediate", "fusion", "ablation", "weights_in", "epilogue"});

// Returns the flags of `operation`, kDispatchGemm or kGemmCombine, in a command whose steps have
// `step_flags`.
std::vector<absl::string_view> FlagsOfFused(Operation operation,
                                            absl::Span<const absl::string_view> step_flags);

// Returns what the flags say about calls of `operation`, one of these two, but for the shape and
// check_steps. Errors are kInvalidArgument, with one sentence.
absl::StatusOr<FusedRunOptions> ParseFusedOptions(const CommandLine& line, Operation operation);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_FUSED_OPTIONS_H_
