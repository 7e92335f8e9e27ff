// `octet gemm`: measures and checks grouped matrix products.
#ifndef OCTET_TOOLS_COMMANDS_GEMM_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_GEMM_COMMAND_H_

#include "absl/status/statusor.h"
#include "tools/commands/command_line.h"
#include "tools/measure/gemm/gemm_run.h"

namespace octet {

Command GemmCommand();

// Returns the product that the command line asks for; flags that a command does not know have their
// defaults. Errors are those of ParseGemmRows.
absl::StatusOr<GemmOptions> ParseGemmOptions(const CommandLine& line);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_GEMM_COMMAND_H_
