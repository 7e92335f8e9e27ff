// `octet layer`: a whole Mixture-of-Experts layer, from a model folder or with random weights.
#ifndef OCTET_TOOLS_COMMANDS_LAYER_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_LAYER_COMMAND_H_

#include "tools/commands/command_line.h"

namespace octet {

Command LayerCommand();

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_LAYER_COMMAND_H_
