#ifndef OCTET_TOOLS_COMMANDS_PERF_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_PERF_COMMAND_H_

#include "tools/commands/command_line.h"

namespace octet {

// `octet perf`: a table of times and bandwidths over numbers of tokens.
Command PerfCommand();

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_PERF_COMMAND_H_
