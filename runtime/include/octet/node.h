// All GPUs of this machine in one process: one thread per rank, peer access between all GPUs.
#ifndef OCTET_NODE_H_
#define OCTET_NODE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/gpu.h"
#include "octet/topology.h"

namespace octet {

class Node;
struct CaptureNeed;

// See NodeOptions::on_failure.
using FailureCallback = std::function<void(const absl::Status& failure)>;

// Writes one line to stderr: "octet: " and the first line of the message.
void PrintFailure(const absl::Status& failure);

struct NodeOptions {
  // The first num_ranks entries of Topology::gpus become the ranks. 0: all GPUs, but at most
  // kMaxRanks.
  int num_ranks = 0;
  // The deadline of a wait on a GPU. Zero: OCTET_TIMEOUT_MS from the environment, else 10 s. Waits
  // on the host take longer, so that a wait on a GPU, which knows better what is missing, reports
  // first: a barrier waits twice as long; a wait for a stream to become idle, or to reach what the
  // host needs, six times as long plus 5 s. After a failure, once all waits on the GPUs have been
  // told to end, streams get twice the timeout plus 5 s.
  absl::Duration timeout = absl::ZeroDuration();
  // Binds each rank's thread to the CPUs near its GPU, if they are known.
  bool pin_threads = true;
  // Called once for each Run that fails, as soon as the first failure is noticed. Run waits for all
  // ranks, so this may be long before Run returns if a rank's thread is stuck. The argument is the
  // first failure noticed, as a sentence and for FailureOf (node_failure.h); Run returns the cause,
  // which may differ, with more detail. Also called once per node when memory is left unfreed
  // because something still runs on a GPU (Node::ReadyToFree).
  //
  // Runs on the thread that noticed the failure: a rank's thread, the thread that called Run or,
  // for unfreed memory, the thread that destroys the object. The other ranks have already been told
  // to stop. The callback may take its time, but that part of the Run waits for it. It must not
  // throw, make HIP calls, wait for the Run, destroy the node or objects made on it, or call Run.
  //
  // Default: prints one line to stderr. nullptr (an empty function): only the Status of Run reports
  // failures, and unfreed memory is not reported.
  FailureCallback on_failure = PrintFailure;
};

// One rank's view of the node. Node::Run passes it to the body on the rank's own thread, with the
// rank's GPU current. Do not use it from another thread or after Run has returned.
class Rank {
 public:
  int rank() const { return rank_; }
  int num_ranks() const;
  int device() const { return device_; }  // HIP's number; ranks that share a GPU have the same
  Node& node() const { return *node_; }

  // The rank's stream (non-blocking), to which Octet enqueues everything. Owned by the node.
  GpuStream stream() const { return stream_; }

  // Returns true if this is a rank of the node that `node` stands for (see Node::Share).
  bool IsOf(const Node& node) const;

  // Waits on the host until all ranks of this Run have arrived. See HostBarrier::Arrive for the
  // errors, which name `before`, the call that the barrier belongs to, if given. Calls of Octet's
  // objects compare here which object it is: kFailedPrecondition names two that differ.
  absl::Status Barrier(absl::string_view before = {});

  // Runs Barrier, then `launch`. Use it for work that all ranks enqueue together: kernels that wait
  // for each other then start at nearly the same time, and none starts if a rank has already
  // failed. The barrier's errors name `call`.
  absl::Status CoordinatedLaunch(absl::FunctionRef<absl::Status()> launch,
                                 absl::string_view call = {});

  // Calls `launch`, which enqueues kernels on stream() that wait for other ranks, without a barrier
  // first. Until Synchronize or the end of the body, Node::Run forbids some HIP calls.
  absl::Status LaunchWaiting(absl::FunctionRef<absl::Status()> launch);

  // Polls until all work on stream() is done. Returns a HIP error, the failure that a kernel of any
  // rank has recorded in its FailureRecord (see Node::Run), or kCancelled when another rank's body
  // has failed. Returns kDeadlineExceeded long after the kernels' own deadline
  // (NodeOptions::timeout).
  absl::Status Synchronize();

  // Polls on the host until `done` returns true as an effect of work on stream(). If the stream
  // becomes idle or fails first, or the node has failed, returns what Synchronize returns; so
  // `done` need not be true when the result is OK. Gives up when Synchronize does, with "waited
  // 65.0 s for `what`".
  absl::Status WaitUntil(absl::FunctionRef<bool()> done, absl::string_view what);

  // Enqueues a kernel that waits on the GPU until all ranks' streams have reached it. Aligns the
  // GPUs to well under a microsecond before something is timed. Does not wait on the host.
  absl::Status EnqueueNodeBarrier();

 private:
  friend class Node;
  friend class NodeClient;
  friend class Graph;
  friend class CallerScope;
  friend class CaptureNeeds;

  // OK if nothing is outstanding on this rank: a send without its receive.
  absl::Status CheckComplete() const;

  Node* node_ = nullptr;
  int rank_ = 0;
  int device_ = 0;
  GpuStream stream_ = nullptr;
  GpuEvent drained_ = nullptr;
  uint64_t coordinated_launches_ = 0;
  uint32_t caller_ = 0;  // of the calls that are being made: runtime/node/caller.h
  // Of the graph that is being captured.
  bool captures_ = false;
  std::vector<std::shared_ptr<const CaptureNeed>> capture_needs_;
  // What this Run has launched; kept until the streams are idle.
  std::set<std::shared_ptr<void>> launched_graphs_;
};

class Node final : public Domain {
 public:
  // Starts the threads, enables peer access between all pairs and creates the streams.
  //   kUnavailable         no GPU or no driver
  //   kInvalidArgument     more ranks than GPUs, or than kMaxRanks; an invalid OCTET_TIMEOUT_MS or
  //                        OCTET_RANKS_PER_GPU
  //   kUnimplemented       OCTET_RANKS_PER_GPU on AMD
  //   kFailedPrecondition  a pair without peer access (named), no cooperative launch
  static absl::StatusOr<std::unique_ptr<Node>> Create(const NodeOptions& options = {});
  // The same for a program that has threads and streams of its own, such as an inference server or
  // JAX: it makes the ranks' calls with Call, in place of Run. `devices` are the GPUs of the ranks,
  // in their order, as HIP numbers them; a GPU that is shared (OCTET_RANKS_PER_GPU) may be named as
  // often as it has shares. The node still has threads and streams: objects are created, and
  // failures recovered from, on these, and Run works between calls. options.num_ranks is 0 or the
  // number of `devices`.
  //   kInvalidArgument  a GPU that there is not, or that is named too often
  static absl::StatusOr<std::unique_ptr<Node>> Adopt(absl::Span<const int> devices,
                                                     const NodeOptions& options = {});
  // Ends the threads and, if the node is ReadyToFree, frees its memory. Must not be called inside
  // Run. Objects made on the node, such as ExpertParallel and SymmetricHeap, may be destroyed after
  // it. Meanwhile their functions that need no Run still work; Run is refused.
  ~Node() override;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int num_ranks() const override;
  const Topology& topology() const;
  absl::Duration timeout() const;

  // Runs `body` on every rank's thread at once; waits for all of them and for the work that they
  // have enqueued. If several errors occur, returns the cause rather than the earliest (as values:
  // FailureOf, node_failure.h):
  //   - `body` returned an error on some rank ("rank r: ..."): the other ranks are released from
  //     barriers and device waits;
  //   - `body` returned OK but left something outstanding, such as a send without its receive: the
  //     other ranks are released likewise;
  //   - a device wait expired: kDeadlineExceeded, saying who waited for what; further lines say
  //     what the other ranks waited for and how far the flags had come;
  //   - a kernel refused its input: kInvalidArgument;
  //   - a HIP call or kernel failed.
  // After an error all streams are drained and all clients recovered: the next Run is correct.
  //
  // From a launch of kernels that may wait for other ranks until the rank's next Synchronize,
  // `body` must not make HIP calls that can wait for a device: allocation and freeing, hipMemcpy,
  // hipMemset, hipDeviceSynchronize, hipStreamSynchronize, hipEventSynchronize, creating or
  // destroying a stream. On GPUs they can deadlock. In emulation they fail the Run with
  // kFailedPrecondition, which names the call and the kernel.
  //
  // An exception that leaves `body` terminates the process, as on any thread: catch it in `body`
  // and return a Status. Run waits for all threads, even for one whose `body` never returns;
  // on_failure reports a failure before that (NodeOptions::on_failure).
  //
  // Only one Run may be in progress. Returns kFailedPrecondition if called during another Run or
  // from inside `body`; after a Run from which the node could not recover (a stream that does not
  // drain, a failed Recover); and through another object for the node (Share) after the node has
  // been destroyed.
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body) override;

  // ---- Of a node that has been adopted; of another one, kFailedPrecondition.

  // Makes calls of `rank` on this thread: `body` gets the Rank, whose stream is `stream`, a stream
  // of the rank's GPU, and the GPU is current. Returns what `body` returns, without waiting for
  // what it has enqueued.
  //
  // Any thread may make a rank's calls, one at a time. Ranks wait for each other on the host
  // (Rank::Barrier), so that as many threads as there are ranks have to make a call of all ranks
  // together. kFailedPrecondition: the thread is in a call of another rank, which could never end;
  // or the rank is in a call on another thread. A thread that makes such calls one rank after the
  // other waits in the first of them until the deadline, and is told.
  //
  // Calls of a rank are executed in the order of its stream. If they come on different streams, the
  // caller makes the later one wait for the earlier. A stream must exist until the rank has called
  // on another one, or Settle has returned. Work on these streams is the caller's: he may capture
  // it (ExpertParallel, "Graphs"), wait for it, and copy it; what fails on a GPU is reported by
  // Rank::Synchronize, by a later Call or by Settle.
  //
  // If `body` returns an error, or a wait or a kernel has failed, the other ranks are released, and
  // further Calls return the failure. After Settle the next Call is correct.
  absl::Status Call(int rank, GpuStream stream, absl::FunctionRef<absl::Status(Rank&)> body);
  // Waits for everything that Calls have enqueued, as the end of a Run does, and returns the cause
  // of a failure, from which the node has then recovered. Call it when all ranks have made the same
  // calls and none is in one (kFailedPrecondition). Run, the creation of objects and the
  // destructors of objects and node do it by themselves; a failure that a destructor finds is
  // returned by the next of the others.
  absl::Status Settle();

  // The number of Runs, and of Settles with something to wait for, that have returned. Any thread
  // may call.
  uint64_t completed_runs() const;

  // Returns true after a Run left a stream that does not drain, or ReadyToFree found work that does
  // not end. Freeing GPU memory would wait for that work, so the node and the objects made on it
  // leave their memory unfreed. Any thread may call.
  bool stuck() const;

  // For destructors of objects that own memory on the GPUs; must not be called inside Run. Waits
  // until no work is left that freeing would wait for: on the ranks' streams, on the devices' null
  // streams, and on the streams that those wait for. Does not see hipStreamNonBlocking streams that
  // the caller has created. Returns false if the node is stuck, or becomes stuck because the
  // streams are not idle within the time given to idle streams (NodeOptions::timeout); the caller
  // must then leave the memory unfreed. on_failure reports it once.
  bool ReadyToFree();

  // Domain: a single node.
  Node& node() override { return *this; }
  int num_nodes() const override { return 1; }
  int node_index() const override { return 0; }
  Rail* rail(int /*local_rank*/) const override { return nullptr; }
  RailTransport transport() const override { return RailTransport::kAuto; }
  absl::Status Agree(absl::string_view /*what*/, absl::string_view /*value*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes) override {
    return std::vector<std::string>{std::string(bytes)};
  }
  absl::Status Together(const absl::Status& mine) override { return mine; }

  // Returns another object for the same node. Objects made on a node keep one, since the node may
  // be destroyed before them: it then has no threads or streams, and refuses Run.
  std::shared_ptr<Node> Share() const;

 private:
  friend class Rank;
  friend class Caller;
  friend class NodeClient;
  class Impl;
  Node(std::shared_ptr<Impl> impl, bool owner);
  static absl::StatusOr<std::unique_ptr<Node>> Make(Topology topology, const NodeOptions& options,
                                                    bool adopted);

  const std::shared_ptr<Impl> impl_;
  const bool owner_;  // false: from Share
};

}  // namespace octet

#endif  // OCTET_NODE_H_
