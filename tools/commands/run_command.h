// `octet run`: dispatch, pointwise experts and combine over one shape or a workload of several.
#ifndef OCTET_TOOLS_COMMANDS_RUN_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_RUN_COMMAND_H_

#include "tools/commands/command_line.h"

namespace octet {

Command RunCommand();

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_RUN_COMMAND_H_
