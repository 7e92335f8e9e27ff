#ifndef OCTET_TOOLS_COMMANDS_TUNE_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_TUNE_COMMAND_H_

#include "tools/commands/command_line.h"

namespace octet {

// `octet tune`: searches for the fastest launch shapes and writes them for OCTET_TUNING.
Command TuneCommand();

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_TUNE_COMMAND_H_
