// `octet topo`: shows the machine's GPUs, and what would prevent a run on them.
#ifndef OCTET_TOOLS_COMMANDS_TOPO_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_TOPO_COMMAND_H_

#include <string>

#include "octet/topology.h"
#include "tools/commands/command_line.h"

namespace octet {

Command TopoCommand();

// Returns the GPUs, the matrix of which GPU can access which, and whether all GPUs can run
// together.
std::string TopologyTable(const Topology& topology);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_TOPO_COMMAND_H_
