#include "tools/report/nodes_report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/enum_names.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string Text(const Json& json) { return json.get<std::string>(); }

// Returns a line for each pair of processes that use the same GPUs: each needs its own.
std::string SharedGpus(const Json& nodes) {
  std::map<std::pair<std::string, std::string>, size_t> owners;  // of (host, GPU): a node
  std::map<std::pair<size_t, size_t>, int> shared;               // by two nodes
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Json& platform = nodes[n]["platform"];
    if (Text(platform["name"]) == "emulation") continue;
    for (const Json& gpu : platform["gpus"]) {
      const auto [owner, added] =
          owners.try_emplace({Text(nodes[n]["host"]), Text(gpu["pci_bus_id"])}, n);
      if (!added && owner->second != n) ++shared[{owner->second, n}];
    }
  }
  std::string lines;
  for (const auto& [pair, gpus] : shared) {
    absl::StrAppend(
        &lines, Comment(absl::StrCat("nodes ", pair.first, " and ", pair.second, " share ", gpus,
                                     " GPUs of ", Text(nodes[pair.first]["host"]),
                                     ": set CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES so "
                                     "that each process has its own")));
  }
  return lines;
}

}  // namespace

absl::StatusOr<Json> NodesToJson(Domain& domain) {
  if (!domain.several_nodes()) return Json();
  const Json mine = {{"node", domain.node_index()},
                     {"host", HostName()},
                     {"process", getpid()},
                     {"rail_transport", std::string(EnumName(domain.transport()))},
                     {"platform", ToJson(domain.node().topology())}};
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      domain.AllGather(mine.dump(-1, ' ', false, Json::error_handler_t::replace)));
  Json json = Json::array();
  for (const std::string& each : all) json.push_back(Json::parse(each, nullptr, false));
  for (const Json& each : json) {
    if (!each.is_object()) return absl::InternalError("a node does not say what it is");
  }
  return json;
}

std::string NodesTable(const Json& nodes) {
  static const auto* const kNodes = new TextTable({{"node", "", 6},
                                                   {"process", "", 9},
                                                   {"gpus", "", 6},
                                                   {"platform", "", 12},
                                                   {"host", "", 26}});
  static const auto* const kRails = new TextTable({{"rail", "", 6},
                                                   {"node", "", 6},
                                                   {"rank", "", 6},
                                                   {"gpu", "", 6},
                                                   {"pci", "", 14},
                                                   {"name", "", 26}});
  size_t ranks = kMaxRanks;
  for (const Json& node : nodes) ranks = std::min(ranks, node["platform"]["gpus"].size());
  std::string table = Comment(absl::StrFormat("%d nodes of up to %d ranks", nodes.size(), ranks));
  absl::StrAppend(&table, kNodes->Head());
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Json& platform = nodes[n]["platform"];
    absl::StrAppend(&table, kNodes->Row({absl::StrCat(n), nodes[n]["process"].dump(),
                                         absl::StrCat(platform["gpus"].size()),
                                         Text(platform["name"]), Text(nodes[n]["host"])}));
  }
  absl::StrAppend(&table, "#\n",
                  Comment(absl::StrCat("rails: GPUs that exchange rows between nodes, carried by ",
                                       Text(nodes[0]["rail_transport"]))),
                  kRails->Head());
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      const Json& gpu = nodes[n]["platform"]["gpus"][r];
      const std::string pci = Text(gpu["pci_bus_id"]);
      absl::StrAppend(
          &table, kRails->Row({absl::StrCat(r), absl::StrCat(n), absl::StrCat(n * ranks + r),
                               gpu["device"].dump(), pci.empty() ? "-" : pci, Text(gpu["name"])}));
    }
  }
  return absl::StrCat(table, SharedGpus(nodes));
}

}  // namespace octet
