// Which nodes a command runs on, for tables and JSON.
#ifndef OCTET_TOOLS_REPORT_NODES_REPORT_H_
#define OCTET_TOOLS_REPORT_NODES_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/report/json_parts.h"
#include "tools/support/domain.h"

namespace octet {

// Collective. Returns an array with the host, the process and the platform of each node; null if
// there is only one.
absl::StatusOr<Json> NodesToJson(Domain& domain);

// Returns a table of the nodes, and one of their rails: which GPUs are connected between nodes.
// `nodes`: NodesToJson of several.
std::string NodesTable(const Json& nodes);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_NODES_REPORT_H_
