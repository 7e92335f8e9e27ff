// `octet topo`: what the machine has, and what would stop a run on it.
#ifndef OCTET_TOOLS_COMMANDS_TOPO_COMMAND_H_
#define OCTET_TOOLS_COMMANDS_TOPO_COMMAND_H_

#include <string>

#include "octet/topology.h"
#include "tools/commands/command_line.h"

namespace octet {

Command TopoCommand();

// GPUs, the matrix of who can reach whom, and whether all GPUs can run together.
std::string TopologyTable(const Topology& topology);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_TOPO_COMMAND_H_
