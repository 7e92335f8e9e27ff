#include "tools/support/nodes.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/support/bytes.h"
#include "tools/support/watched_node.h"

namespace octet {

std::string Nodes::Prefix() const {
  return several() ? absl::StrCat("node ", node_index(), ": ") : "";
}

absl::StatusOr<std::vector<double>> Nodes::Largest(absl::Span<const double> mine) {
  std::vector<double> largest(mine.begin(), mine.end());
  if (!several()) return largest;
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllGather(BytesOf(mine)));
  for (size_t n = 0; n < all.size(); ++n) {
    std::vector<double> theirs;
    if (!AppendBytes(all[n], theirs) || theirs.size() != largest.size()) {
      return absl::InternalError(absl::StrCat("node ", n, " gives ", all[n].size(), " bytes for ",
                                              largest.size(), " numbers"));
    }
    for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], theirs[i]);
  }
  return largest;
}

absl::StatusOr<std::unique_ptr<Nodes>> JoinNodes(const Launch& launch,
                                                 const NodesOptions& options) {
  if (launch.several()) return launch.join(launch, options);
  OCTET_RETURN_IF_ERROR(options.prepared);
  OCTET_ASSIGN_OR_RETURN(
      std::shared_ptr<Node> node,
      CreateWatchedNode({.num_ranks = options.num_ranks, .timeout = options.timeout}));
  return std::make_unique<OneNode>(std::move(node));
}

}  // namespace octet
