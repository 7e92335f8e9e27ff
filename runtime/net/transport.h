// Which transport the nodes of a World agree on.
#ifndef OCTET_RUNTIME_NET_TRANSPORT_H_
#define OCTET_RUNTIME_NET_TRANSPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/domain.h"

namespace octet {

// What the nodes have to offer, by node.
struct TransportOffers {
  std::vector<absl::Status> nccl;          // whether its library can be loaded
  std::vector<std::string> nccl_versions;  // empty where it cannot
};

// Returns the transport to try, not kAuto, for what all nodes have asked for. `prefers_nccl`: kAuto
// takes kNccl if all nodes have it.
//   kInvalidArgument  the nodes have different versions of NCCL
//   kUnavailable      kNccl, and a node cannot load the library: "node n: ..."
absl::StatusOr<RailTransport> ChooseTransport(RailTransport asked, bool prefers_nccl,
                                              const TransportOffers& offers);

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_TRANSPORT_H_
