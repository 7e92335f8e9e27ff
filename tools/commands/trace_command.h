#ifndef OCTET_TOOLS_COMMANDS_TRACE_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_TRACE_COMMAND_H_

#include "tools/commands/command_line.h"

namespace octet {

// `octet trace`: shows what happens inside the kernels, as a file for Perfetto and as a summary.
Command TraceCommand();

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_TRACE_COMMAND_H_
