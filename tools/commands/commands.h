// The commands of `octet`.
#ifndef OCTET_TOOLS_COMMANDS_COMMANDS_H_
#define OCTET_TOOLS_COMMANDS_COMMANDS_H_

#include "tools/commands/command_line.h"

namespace octet {

Command RunCommand();      // dispatch, experts and combine: verified and timed
Command PerfCommand();     // a table of times and bandwidths over numbers of tokens
Command TraceCommand();    // where the time goes inside the kernels
Command TuneCommand();     // looks for faster launches, strategies and tiles
Command GemmCommand();     // measures and checks grouped matrix products
Command LayerCommand();    // a whole layer
Command ModelCommand();    // what a model folder has
Command BalanceCommand();  // plans which expert lives where
Command TopoCommand();     // the GPUs of this machine

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_COMMANDS_H_
