// All GPUs of this machine in one process: a thread for each, peer access between all of them.
#ifndef OCTET_RUNTIME_NODE_H_
#define OCTET_RUNTIME_NODE_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/peers.h"
#include "runtime/flag_table.h"
#include "runtime/topology.h"

namespace octet {

class Node;

struct NodeOptions {
  // The first num_ranks of Topology::gpus become the ranks. 0: all that there are, kMaxRanks at
  // most.
  int num_ranks = 0;
  // How long a wait on a GPU takes at most. Zero: the environment's OCTET_TIMEOUT_MS, else 10 s.
  // Waits on the host are given more, so that a wait on a GPU, which knows more about what is
  // missing, speaks first: barriers twice as long, idle streams six times as long and 5 s.
  absl::Duration timeout = absl::ZeroDuration();
  // Bind each rank's thread to the CPUs near its GPU, where that is known.
  bool pin_threads = true;
};

// One rank's view, handed to the body of Node::Run on that rank's own thread, with the rank's GPU
// current. Not to be used from another thread, nor after Run has returned.
class Rank {
 public:
  int rank() const { return rank_; }
  int num_ranks() const;
  int device() const { return device_; }  // HIP's number; of several ranks where they share a GPU
  Node& node() const { return *node_; }

  // The rank's stream (non-blocking). Everything Octet enqueues goes there. Owned by the node.
  hipStream_t stream() const { return stream_; }

  // Waits on the host until all ranks of this Run are here. See HostBarrier::Arrive for errors.
  absl::Status Barrier();

  // Barrier, then `launch`: what all ranks enqueue together, so that kernels which wait for each
  // other start at nearly the same time, and none starts if a rank has failed before.
  absl::Status CoordinatedLaunch(absl::FunctionRef<absl::Status()> launch);

  // Waits until everything enqueued on stream() is done, polling. Reports a HIP error, or what a
  // kernel of any rank has written into its FailureRecord (see Node::Run), or kCancelled when
  // another rank's body has failed. Gives up, with kDeadlineExceeded, long after the kernels' own
  // deadline (NodeOptions::timeout).
  absl::Status Synchronize();

  // For the parameters of a kernel launched by client `client` (Node::AddClient).
  device::FailurePort failure_port(uint32_t client) const;

  // A kernel that waits on the GPU until all ranks' streams have come to it: lines the GPUs up to
  // well under a microsecond before something is timed. Enqueues only.
  absl::Status EnqueueNodeBarrier();

 private:
  friend class Node;
  friend class Graph;
  Node* node_ = nullptr;
  int rank_ = 0;
  int device_ = 0;
  hipStream_t stream_ = nullptr;
  hipEvent_t drained_ = nullptr;
  uint64_t coordinated_launches_ = 0;
};

// Something that keeps flags and counters on the GPUs and must start afresh after a failure.
class NodeClient {
 public:
  virtual ~NodeClient() = default;

  // The record as a sentence: which wait or check its `site` is. Called on any thread.
  virtual absl::Status Describe(int rank, const device::FailureRecord& record) const = 0;

  // After a Run in which a wait has expired, when all streams are drained and before Recover, the
  // node asks how far the flags have come, to put it into the Status: each rank's thread enqueues
  // a copy of the rank's flags to the host, and when all are there, FlagTables makes tables of
  // them. `waits`: what each rank waited for, among its flags of this client (kind kNone: nothing).
  virtual absl::Status CopyFlags(Rank& rank);
  virtual std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits);

  // Called on each rank's thread after a failed Run, when all streams are drained and before
  // anything else runs: bring back a state from which the next call is correct on all ranks.
  virtual absl::Status Recover(Rank& rank) = 0;
};

class Node {
 public:
  // Starts the threads, switches on peer access between all pairs and creates the streams.
  //   kUnavailable         no GPU or no driver
  //   kInvalidArgument     more ranks than GPUs, or than kMaxRanks; OCTET_TIMEOUT_MS or
  //                        OCTET_RANKS_PER_GPU cannot be
  //   kUnimplemented       OCTET_RANKS_PER_GPU on AMD
  //   kFailedPrecondition  a pair without peer access (named), no cooperative launch
  static absl::StatusOr<std::unique_ptr<Node>> Create(const NodeOptions& options = {});
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int num_ranks() const;
  const Topology& topology() const;
  absl::Duration timeout() const;

  // Runs `body` on every rank's thread at once and waits for all of them, and for what they have
  // enqueued. The first error, by cause rather than by time, comes back:
  //   - `body` returned it on some rank ("rank r: ..."): the others are released from barriers and
  //     device waits;
  //   - a device wait expired: kDeadlineExceeded with who waited for what (NodeClient::Describe),
  //     and on lines below it what the other ranks waited for and how far the flags had come;
  //   - a kernel refused its input: kInvalidArgument;
  //   - a HIP call or kernel failed.
  // After an error all streams are drained and all clients recovered: the next Run is correct.
  // While kernels of several ranks wait for each other, `body` must not make HIP calls that wait
  // for a device (hipMalloc, hipFree, hipMemcpy, hipDeviceSynchronize): they can deadlock. Use
  // streams, and Synchronize first.
  // One Run at a time; not from inside `body`: kFailedPrecondition. So does every Run after one
  // from which the node could not recover (a stream that does not drain, a failed Recover).
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body);

  // True after a Run that has left a stream which does not drain. Freeing memory of the GPUs would
  // wait for that stream, so the node and what was made with it keep theirs when they go.
  bool stuck() const;

  // Registers a client; the id goes into its kernels' FailurePort. The client must outlive its
  // registration. Not during Run.
  uint32_t AddClient(NodeClient* client);
  void RemoveClient(uint32_t id);

 private:
  friend class Rank;
  class Impl;
  Node();
  std::unique_ptr<Impl> impl_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_H_
