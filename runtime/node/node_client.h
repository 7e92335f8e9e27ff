// The interface through which objects that launch waiting kernels take part in the failure
// protocol.
#ifndef OCTET_RUNTIME_NODE_NODE_CLIENT_H_
#define OCTET_RUNTIME_NODE_NODE_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/flag_table.h"

namespace octet {

// An object that keeps flags and counters on the GPUs, which must be reset after a failure.
class NodeClient {
 public:
  virtual ~NodeClient() = default;

  // Registers `client` with the node and returns the id for its kernels' FailurePort. The client
  // must outlive its registration. Must not be called during Run. `name`: for reports of failures
  // (runtime/node/caller.h); may be empty.
  static uint32_t Register(Node& node, NodeClient* client, std::string name = {});
  static void Unregister(Node& node, uint32_t id);
  // Returns the port for the parameters of a kernel that client `id` launches on `rank`.
  static device::FailurePort PortOf(const Rank& rank, uint32_t id);

  // Ends the Run in progress, if its bodies are being executed, as a failure that is none of its
  // ranks': barriers and waits on the GPUs end, and Run returns `status` (not OK) unless a rank has
  // failed by itself. kCancelled says that the cause lies elsewhere. Any thread may call.
  static void Release(Node& node, const absl::Status& status);

  // Returns the failure in the record, with a sentence that names the wait or check at its `site`:
  // made by DeadlineStatus or WithFailure (runtime/failure/failure.h). Any thread may call.
  virtual absl::Status Describe(int rank, const device::FailureRecord& record) const = 0;

  // After a Run in which a wait expired, once all streams are drained and before Recover, the node
  // reports how far the flags have come in the Status: each rank's thread enqueues a copy of the
  // rank's flags to the host (CopyFlags); when all copies are done, FlagTables turns them into
  // tables. `waits[r]` is the flag of this client that rank r waited for (kind kNone: none).
  virtual absl::Status CopyFlags(Rank& rank);
  virtual std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits);

  // Returns an error if the rank has begun something with this client and not finished it, such as
  // a send without its receive; the error says what. Called on the rank's thread when the body of a
  // Run has returned OK, and before a graph is launched; an error fails the Run or refuses the
  // launch. Enqueues nothing.
  virtual absl::Status CheckComplete(const Rank& rank) const;

  // Restores a state from which the next call is correct on all ranks. Called on each rank's thread
  // after a failed Run, when all streams are drained and before anything else runs.
  virtual absl::Status Recover(Rank& rank) = 0;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_NODE_CLIENT_H_
