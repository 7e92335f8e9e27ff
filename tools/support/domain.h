// The domain that a command runs on: the node of this process, or a World of several processes.
#ifndef OCTET_TOOLS_SUPPORT_DOMAIN_H_
#define OCTET_TOOLS_SUPPORT_DOMAIN_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/node.h"
#include "runtime/memory/device_memory.h"
#include "tools/support/launch.h"

namespace octet {

struct DomainOptions {
  int num_ranks = 0;                              // of each node
  absl::Duration timeout = absl::ZeroDuration();  // zero: the node's own default
  absl::Status prepared = absl::OkStatus();       // WorldOptions::prepared
  RailTransport transport = RailTransport::kAuto;
};

// Collective (octet/domain.h). The one place that decides whether a command runs on one node or on
// several: creates the node of this process and, if the launch has several processes, joins them.
// Whatever goes wrong before, in a single process even, belongs into options.prepared. A failure
// that does not end is dealt with as by CreateWatchedNode.
absl::StatusOr<std::shared_ptr<Domain>> JoinDomain(const Launch& launch,
                                                   const DomainOptions& options);

// Whether this process prints and writes what is told about all nodes.
inline bool IsFirst(const Domain& domain) { return domain.node_index() == 0; }
// Returns "node n: " before what is said about this node; nothing if it is the only one.
std::string PrefixOf(const Domain& domain);
// Collective. Returns the largest that a node has given, of each value.
absl::StatusOr<std::vector<double>> Largest(Domain& domain, absl::Span<const double> mine);

// Barriers of all ranks of a domain, inside Run.
class DomainBarrier {
 public:
  // Collective. `domain` must outlive it.
  static absl::StatusOr<DomainBarrier> Create(Domain& domain);

  // Waits on the host until all ranks of all nodes have called it. The rank's stream must be idle.
  absl::Status Arrive(Rank& rank);
  // Enqueues a barrier of the GPUs of all nodes on the rank's stream: like
  // Rank::EnqueueNodeBarrier.
  absl::Status Enqueue(Rank& rank);

 private:
  explicit DomainBarrier(Domain& domain) : domain_(&domain) {}
  // Enqueues an exchange of a few bytes with the rank's peers on the other nodes.
  absl::Status Meet(Rank& rank);

  Domain* domain_;
  std::vector<DeviceMemory> memory_;  // by rank: what is sent, then what is received; or nothing
};

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_DOMAIN_H_
