// All GPUs of this machine in one process: a thread for each, peer access between all of them.
#ifndef OCTET_NODE_H_
#define OCTET_NODE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/gpu.h"
#include "octet/topology.h"

namespace octet {

class Node;

// See NodeOptions::on_failure.
using FailureCallback = std::function<void(const absl::Status& failure)>;

// Writes one line to stderr: "octet: " and the first line of the message.
void PrintFailure(const absl::Status& failure);

struct NodeOptions {
  // The first num_ranks of Topology::gpus become the ranks. 0: all that there are, kMaxRanks at
  // most.
  int num_ranks = 0;
  // How long a wait on a GPU takes at most. Zero: the environment's OCTET_TIMEOUT_MS, else 10 s.
  // Waits on the host are given more, so that a wait on a GPU, which knows more about what is
  // missing, speaks first: barriers twice as long; streams, until they are idle or have come to
  // what the host needs of them, six times as long and 5 s. After a failure, when all waits on the
  // GPUs have been told to end, streams are given twice as long and 5 s.
  absl::Duration timeout = absl::ZeroDuration();
  // Bind each rank's thread to the CPUs near its GPU, where that is known.
  bool pin_threads = true;
  // Called once for each Run that fails, when the first failure is noticed: long before Run returns
  // if the thread of a rank is stuck, since Run waits for all of them. Gets the first failure that
  // was noticed; Run returns the cause, which may be another one, and more about it. Also called,
  // once for a node, when memory is left unfreed because something still runs on a GPU
  // (Node::ReadyToFree).
  //
  // Runs on the thread that noticed: a rank's, the one that called Run, or for memory the one that
  // destroys the object. By then the other ranks have been told to stop. It may take its time, but
  // that part of the Run waits for it. It must not throw, make HIP calls, wait for the Run, destroy
  // the node or what was made on it, or call Run.
  //
  // Default: the sentence on stderr. nullptr (an empty function): failures are told only by the
  // Status of Run, and nothing is said of memory that is left.
  FailureCallback on_failure = PrintFailure;
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
  GpuStream stream() const { return stream_; }

  // True if this is a rank of that node, or of another object for it (Node::Share).
  bool IsOf(const Node& node) const;

  // Waits on the host until all ranks of this Run are here. See HostBarrier::Arrive for errors,
  // which name `before`, the call that the barrier belongs to, if it is given.
  absl::Status Barrier(absl::string_view before = {});

  // Barrier, then `launch`: what all ranks enqueue together, so that kernels which wait for each
  // other start at nearly the same time, and none starts if a rank has failed before. `call` names
  // the call in errors of the barrier.
  absl::Status CoordinatedLaunch(absl::FunctionRef<absl::Status()> launch,
                                 absl::string_view call = {});

  // Calls `launch`, which enqueues kernels on stream() that wait for other ranks, without a barrier
  // before. From here to Synchronize, or the end of the body, Node::Run forbids some HIP calls.
  absl::Status LaunchWaiting(absl::FunctionRef<absl::Status()> launch);

  // Waits until everything enqueued on stream() is done, polling. Reports a HIP error, or what a
  // kernel of any rank has written into its FailureRecord (see Node::Run), or kCancelled when
  // another rank's body has failed. Gives up, with kDeadlineExceeded, long after the kernels' own
  // deadline (NodeOptions::timeout).
  absl::Status Synchronize();

  // Waits on the host, polling, until `done`, which something on stream() brings about. If the
  // stream becomes idle or fails before that, or the node has failed, the result is that of
  // Synchronize, so `done` need not be true when it is OK. Gives up as Synchronize does, with
  // "waited 65.0 s for `what`".
  absl::Status WaitUntil(absl::FunctionRef<bool()> done, absl::string_view what);

  // A kernel that waits on the GPU until all ranks' streams have come to it: lines the GPUs up to
  // well under a microsecond before something is timed. Enqueues only.
  absl::Status EnqueueNodeBarrier();

 private:
  friend class Node;
  friend class NodeClient;
  friend class Graph;

  // OK if nothing that was begun on this rank is outstanding: a send without its receive.
  absl::Status CheckComplete() const;

  Node* node_ = nullptr;
  int rank_ = 0;
  int device_ = 0;
  GpuStream stream_ = nullptr;
  GpuEvent drained_ = nullptr;
  uint64_t coordinated_launches_ = 0;
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
  // Ends the threads and frees what belongs to the node, if it is ReadyToFree. Not inside Run.
  // Objects that were made on the node, such as ExpertParallel and SymmetricHeap, may be destroyed
  // after it. What they can still do without a Run they do; Run is refused.
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
  //   - `body` returned OK but left something outstanding, such as a send without its receive:
  //   likewise;
  //   - a device wait expired: kDeadlineExceeded with who waited for what,
  //     and on lines below it what the other ranks waited for and how far the flags had come;
  //   - a kernel refused its input: kInvalidArgument;
  //   - a HIP call or kernel failed.
  // After an error all streams are drained and all clients recovered: the next Run is correct.
  // While kernels may wait for other ranks, which is from a launch to the rank's next Synchronize,
  // `body` must not make HIP calls that can wait for a device: allocation and freeing, hipMemcpy,
  // hipMemset, hipDeviceSynchronize, hipStreamSynchronize, hipEventSynchronize, making or
  // destroying a stream. On GPUs they can deadlock. In emulation they fail the Run with
  // kFailedPrecondition, which names the call and the kernel.
  // An exception that leaves `body` terminates the process, as on any thread: catch it there and
  // return a Status. Run waits for all threads, also for one whose `body` never returns; a failure
  // is told before that (NodeOptions::on_failure).
  // One Run at a time; not from inside `body`: kFailedPrecondition. So does every Run after one
  // from which the node could not recover (a stream that does not drain, a failed Recover), and
  // every Run through another object for the node after the node itself has been destroyed.
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body);

  // How many Runs have come back so far. Any thread.
  uint64_t completed_runs() const;

  // True after a Run that has left a stream which does not drain, or a ReadyToFree that has found
  // something which does not end. Freeing memory of the GPUs would wait for that, so the node and
  // what was made on it leave theirs unfreed. Any thread.
  bool stuck() const;

  // For destructors of what has memory on the GPUs; not inside Run. Waits until nothing runs any
  // more that freeing would wait for: on the ranks' streams, the devices' null streams, and the
  // streams that those wait for. Streams with hipStreamNonBlocking that the caller has created are
  // not seen. False if the node is stuck or becomes so now, after as long as idle streams are
  // waited for (NodeOptions::timeout): then leave the memory unfreed. on_failure is told once.
  bool ReadyToFree();

  // Another object for the same node. What is made on a node keeps one, since the node may be
  // destroyed first: then it has no threads and streams any more, and Run is refused.
  std::shared_ptr<Node> Share() const;

 private:
  friend class Rank;
  friend class NodeClient;
  class Impl;
  Node(std::shared_ptr<Impl> impl, bool owner);

  const std::shared_ptr<Impl> impl_;
  const bool owner_;  // false: from Share
};

}  // namespace octet

#endif  // OCTET_NODE_H_
