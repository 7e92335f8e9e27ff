// Several nodes: one process for each, joined by MPI.
#ifndef OCTET_WORLD_H_
#define OCTET_WORLD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "octet/domain.h"
#include "octet/node.h"

namespace octet {

struct WorldOptions {
  // The Node of this process. All processes must have as many ranks and the same timeout, which is
  // also the time after which a process that gives no sign of life is lost, but at least a second.
  // What on_failure is told begins with "node n: ".
  NodeOptions node;
  // How long a call of the World, the first one too, waits for all processes to make it. Zero: one
  // minute.
  absl::Duration arrival_timeout = absl::ZeroDuration();
  // The same on all nodes.
  RailTransport transport = RailTransport::kAuto;
  // What went wrong in this process before Create, such as with its command line. An error makes
  // Create fail on all processes: they do not wait for one that cannot come.
  absl::Status prepared = absl::OkStatus();
};

// The processes that mpirun, or another launcher of MPI, has started together: each has one Node.
// All functions marked *collective* are called by all processes, in the same order, by one thread
// at a time and not inside Run. docs/several_nodes.md says how to start the processes.
//
// Errors that all processes return alike, in the same words, leave the World as it was. The World
// is *broken* when a process has died or does not answer, or calls do not agree: the call in
// progress returns, on every process that still lives,
//   kUnavailable         "node 1 (host a, process 4711) has died or been stopped: ..."
//   kDeadlineExceeded    a process has not made the call within arrival_timeout (named)
//   kFailedPrecondition  the processes have made different calls (named)
// and all later calls return kFailedPrecondition with the same reason: all processes have to be
// started again.
class World final : public Domain {
 public:
  // Collective. Starts MPI unless the program has, creates the Node, compares what must be the same
  // in all processes (version, platform, ranks, timeout, transport, version of NCCL) and connects
  // the rails.
  //   kUnimplemented       Octet has been built without MPI
  //   kFailedPrecondition  the program has started MPI without MPI_THREAD_MULTIPLE, or MPI has been
  //                        shut down
  //   kDeadlineExceeded    not all processes have come within arrival_timeout, with the call of MPI
  //                        that has waited for them
  //   kInvalidArgument     a difference, with both values; a negative arrival_timeout
  //   kUnavailable         RailTransport::kNccl, and the library cannot be loaded or a communicator
  //                        has not come up within arrival_timeout, with "node n: "
  // and what Node::Create returns, or WorldOptions::prepared is, with "node n: ".
  //
  // MPI_Init_thread can be neither interrupted nor made again. If it has not returned in time,
  // Create leaves it behind on a thread of its own: this process can have no World any more
  // (kFailedPrecondition) and has to end. What MPI_Init_thread itself finds to be wrong ends the
  // process, since there is no error handler yet.
  static absl::StatusOr<std::unique_ptr<World>> Create(const WorldOptions& options = {});
  // Collective: waits for the other processes, unless the World is broken. Shuts down MPI if Create
  // has started it; a process can then have no other World. MPI_Finalize is left behind on its
  // thread if it has not returned within arrival_timeout, which NodeOptions::on_failure reports.
  // Objects made on the node may be destroyed later.
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int num_nodes() const override;
  int node_index() const override;
  int num_ranks() const override;
  // Returns the chosen transport, never kAuto.
  RailTransport transport() const override;
  // Its own Run may be called between collective calls, without the rails.
  Node& node() override;
  Rail* rail(int local_rank) const override;  // never nullptr

  absl::Status Agree(absl::string_view what, absl::string_view value) override;
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes) override;
  absl::Status Together(const absl::Status& mine) override;

  // Collective. Runs `body` on every rank of every node, as Node::Run does on its own. If a node
  // has failed, ends the waits of the others at once, and all processes return the cause: the error
  // of Node::Run with "node n: " before it. The next Run is then correct. With RailTransport::kNccl
  // all communicators are made anew first, which takes seconds; graphs that have captured exchanges
  // can no longer be launched (Graph::Launch) and should be destroyed, since they keep the memory
  // of the old communicators.
  //
  // A node's body may take any time as long as its process lives.
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body) override;

 private:
  class Impl;
  explicit World(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace octet

#endif  // OCTET_WORLD_H_
