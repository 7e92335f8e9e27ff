// How an object with kernels that wait takes part in the failure protocol of its node.
#ifndef OCTET_RUNTIME_NODE_CLIENT_H_
#define OCTET_RUNTIME_NODE_CLIENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "runtime/device/failure_record.h"
#include "runtime/flag_table.h"

namespace octet {

// What keeps flags and counters on the GPUs, and must be reset after a failure.
class NodeClient {
 public:
  virtual ~NodeClient() = default;

  // Registers `client` with the node and returns the id that its kernels' FailurePort carries. The
  // client must outlive its registration. Not during Run.
  static uint32_t Register(Node& node, NodeClient* client);
  static void Unregister(Node& node, uint32_t id);
  // Returns the port for the parameters of a kernel that client `id` launches on `rank`.
  static device::FailurePort PortOf(const Rank& rank, uint32_t id);

  // Returns the record as a sentence that names the wait or check at its `site`. Any thread.
  virtual absl::Status Describe(int rank, const device::FailureRecord& record) const = 0;

  // After a Run in which a wait has expired, when all streams are drained and before Recover, the
  // node asks how far the flags have come, to put it into the Status: each rank's thread enqueues
  // a copy of the rank's flags to the host, and when all are there, FlagTables makes tables of
  // them. `waits`: what each rank waited for, among its flags of this client (kind kNone: nothing).
  virtual absl::Status CopyFlags(Rank& rank);
  virtual std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits);

  // OK unless the rank has begun something with this client that it has yet to finish, such as a
  // send without its receive; the error says what. Called on the rank's thread when the body of a
  // Run has returned OK, which the error then fails, and before a graph is launched, which is then
  // refused. Enqueues nothing.
  virtual absl::Status CheckComplete(const Rank& rank) const;

  // Called on each rank's thread after a failed Run, when all streams are drained and before
  // anything else runs: bring back a state from which the next call is correct on all ranks.
  virtual absl::Status Recover(Rank& rank) = 0;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_CLIENT_H_
