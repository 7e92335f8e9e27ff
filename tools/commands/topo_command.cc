#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/commands.h"
#include "tools/report/nodes_report.h"
#include "tools/support/domain.h"
#include "tools/support/exit_code.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "topo";

// Returns ranges of ascending numbers: "0-3,8".
std::string Ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", numbers[i]);
    if (last > i) absl::StrAppend(&text, "-", numbers[last]);
    i = last + 1;
  }
  return text.empty() ? "unknown" : text;
}

std::string TopologyTable(const Topology& topology) {
  std::string table = absl::StrFormat("# platform %s, driver %d, runtime %d\n", topology.platform,
                                      topology.driver_version, topology.runtime_version);
  absl::StrAppendFormat(&table, "#%4s  %-24s%-13s%5s%6s%5s%8s%5s  %s\n", "gpu", "name", "pci",
                        "numa", "units", "wave", "GiB", "coop", "near cpus");
  for (const GpuInfo& gpu : topology.gpus) {
    absl::StrAppendFormat(&table, "%5d  %-24s%-13s%5s%6d%5d%8.1f%5s  %s\n", gpu.device, gpu.name,
                          gpu.pci_bus_id.empty() ? "-" : gpu.pci_bus_id,
                          gpu.numa_node < 0 ? "-" : absl::StrCat(gpu.numa_node),
                          gpu.num_compute_units, gpu.wave_size,
                          static_cast<double>(gpu.memory_bytes) / (1ULL << 30),
                          gpu.cooperative_launch ? "yes" : "no", Ranges(gpu.near_cpus));
  }
  table += "#\n# peer access (row reaches column)\n#    ";
  for (size_t peer = 0; peer < topology.can_access.size(); ++peer) {
    absl::StrAppendFormat(&table, "%3d", peer);
  }
  table += "\n";
  for (size_t device = 0; device < topology.can_access.size(); ++device) {
    absl::StrAppendFormat(&table, "%5d", device);
    for (size_t peer = 0; peer < topology.can_access[device].size(); ++peer) {
      absl::StrAppendFormat(&table, "%3s",
                            device == peer                      ? "."
                            : topology.can_access[device][peer] ? "x"
                                                                : "-");
    }
    table += "\n";
  }
  const int ranks = std::min(static_cast<int>(topology.gpus.size()), kMaxRanks);
  const absl::Status status = topology.CheckRanks(ranks);
  absl::StrAppendFormat(&table, "#\n# %d ranks: %s\n", ranks,
                        status.ok() ? "can run" : std::string(status.message()));
  return table;
}

// Prints the nodes and their rails, and the table of each node.
absl::Status ShowNodes(Domain& domain) {
  OCTET_ASSIGN_OR_RETURN(const Json facts, NodesToJson(domain));
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> tables,
                         domain.AllGather(TopologyTable(domain.node().topology())));
  if (!IsFirst(domain)) return absl::OkStatus();
  absl::PrintF("%s", NodesTable(facts));
  for (size_t n = 0; n < tables.size(); ++n) {
    absl::PrintF("#\n# ---- node %d\n%s", n, tables[n]);
  }
  return absl::OkStatus();
}

int Run(CommandLine& line) {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  if (line.launch().several()) {
    // With one rank, so that nodes are shown that cannot run together.
    const absl::StatusOr<std::shared_ptr<Domain>> domain =
        JoinDomain(line.launch(), {.num_ranks = 1, .prepared = topology.status()});
    if (!domain.ok()) return FailToJoin(kName, line.launch(), domain.status());
    const absl::Status shown = ShowNodes(**domain);
    if (!shown.ok()) PrintError(kName, shown);
    return ExitCodeOf(shown);
  }
  if (!topology.ok()) {
    PrintError(kName, topology.status());
    return ExitCodeOf(topology.status());
  }
  absl::PrintF("%s", TopologyTable(*topology));
  return kExitOk;
}

}  // namespace

Command TopoCommand() {
  return {.name = kName,
          .summary = "the GPUs of this machine, and what would stop a run",
          .details =
              "Prints the GPUs, who can reach whose memory, and what would stop a run.\n"
              "mpirun -n 2 octet topo prints that of two nodes, and which GPUs exchange rows\n"
              "between them.",
          .several_nodes = true,
          .add_flags = [](CommandLine&) {},
          .run = Run};
}

}  // namespace octet
