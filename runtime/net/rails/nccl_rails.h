// Rails over NCCL or RCCL: sends and receives between the GPUs' own memory.
//
//   stream   ... kernel that numbers, ncclSend and ncclRecv of headers and parts, kernel that
//   checks a thread of the host watches, and aborts the communicator if the exchange does not end
//
// NCCL's kernels have no deadline, so the host has to end them; the kernel that checks then finds
// what is missing and fails the Run, as all waits on GPUs do. NCCL does not compare sizes either:
// headers do that.
#ifndef OCTET_RUNTIME_NET_RAILS_NCCL_RAILS_H_
#define OCTET_RUNTIME_NET_RAILS_NCCL_RAILS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "runtime/net/progress.h"
#include "runtime/net/rails/rails.h"

namespace octet {

// Returns the version of the library. kUnavailable with the reason if it cannot be loaded, or if
// Octet has been built without its header.
absl::StatusOr<std::string> NcclVersion();

// Collective: makes a communicator for each rank and connects it with all nodes, each within
// `limit`. If a node fails, all return its error, with "node n: ". Not inside Run.
absl::StatusOr<std::unique_ptr<Rails>> MakeNcclRails(Node& node, Progress& progress,
                                                     absl::Duration limit);

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_RAILS_NCCL_RAILS_H_
