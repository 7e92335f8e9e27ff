// `octet gemm`: measures and checks grouped matrix products.
#ifndef OCTET_TOOLS_COMMANDS_GEMM_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_GEMM_COMMAND_H_

#include "tools/commands/command_line.h"

namespace octet {

Command GemmCommand();

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_GEMM_COMMAND_H_
