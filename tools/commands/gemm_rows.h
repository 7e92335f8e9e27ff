// The rows of the experts that `octet gemm` multiplies, from its flags.
#ifndef OCTET_TOOLS_COMMANDS_GEMM_ROWS_H_
#define OCTET_TOOLS_COMMANDS_GEMM_ROWS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/commands/command_line.h"

namespace octet {

// The flags that ParseGemmRows reads: all but the first two say what the routing is.
inline constexpr auto kGemmRowsFlags = std::to_array<absl::string_view>(
    {"rows", "experts", "ranks", "topk", "tokens", "max_tokens", "routing", "drop"});

// Returns the number of rows of each expert, of 1 to 256 experts:
//   --rows=N --experts=E   E experts of N rows; one expert without --experts
//   --rows=512,0,8x64      as listed; --experts, if given, must agree
//   --rows=routing         what rank 0's experts receive of --ranks ranks, which have --tokens
//                          tokens each and share --experts experts; drawn as by `octet run` with
//                          the same flags
// Reads the file of --routing. Errors are kInvalidArgument, kNotFound or those of the file system,
// with one sentence.
absl::StatusOr<std::vector<int32_t>> ParseGemmRows(const CommandLine& line);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_GEMM_ROWS_H_
