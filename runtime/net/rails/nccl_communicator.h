// One rank's communicator over the nodes.
#ifndef OCTET_RUNTIME_NET_RAILS_NCCL_COMMUNICATOR_H_
#define OCTET_RUNTIME_NET_RAILS_NCCL_COMMUNICATOR_H_

#include <hip/hip_runtime.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/mutex.h"
#include "runtime/net/call_thread.h"
#include "runtime/net/rails/nccl_library.h"
#include "runtime/node/capture_need.h"

namespace octet {

// Bytes to or from one node.
struct NcclTransfer {
  int node = 0;
  const void* send = nullptr;
  size_t send_bytes = 0;
  void* recv = nullptr;
  size_t recv_bytes = 0;
};

// No function waits for other processes for longer than it is told. Connect, Wake and Enqueue
// belong to one thread; any thread may call the others.
//
// A communicator of the library either blocks, so that a call may wait for other processes for
// ever, or does not, so that the library starts a thread for each call, which takes longer than the
// call. Here one that does not block is made first, with a deadline, and then another one from it
// that does. Calls for that are made on a thread of this object, which is left behind if they do
// not return.
class NcclCommunicator {
 public:
  // The most blocks of a kernel of the library, each on a compute unit of its own. Versions before
  // 2.17 may have more.
  static constexpr int kMaxBlocks = 32;

  explicit NcclCommunicator(const NcclLibrary& library) : library_(library) {}
  // Aborts. Does not wait for memory that graphs still need (Abort).
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  struct Membership {
    int num_nodes = 0;
    int node = 0;
    ncclUniqueId id = {};
  };
  // Joins the communicator, for the current device, which all other nodes do likewise. `go_on` is
  // asked between polls; once it returns false, this returns kCancelled. kResourceExhausted if
  // there is no thread for Abort.
  absl::Status Connect(const Membership& membership, absl::FunctionRef<bool()> go_on);

  // Says that Enqueue follows soon, which is faster then. Optional.
  void Wake() { calls_.Wake(); }

  // Enqueues all transfers as one operation. Zero bytes are not sent. Waits until they are
  // enqueued, which takes no other node unless it is the first operation. kCancelled if it has been
  // aborted.
  absl::Status Enqueue(absl::Span<const NcclTransfer> transfers, hipStream_t stream,
                       absl::FunctionRef<bool()> go_on);

  // Returns an error that the library has noticed meanwhile.
  absl::Status AsyncError();

  // Ends what is enqueued, on the GPU as well, and leaves the communicator. Returns at once: a
  // thread, which Connect has made, frees the memory, or waits until the graphs that have captured
  // operations are destroyed. From now on these must not be launched. Idempotent.
  void Abort();
  // Waits until what Abort has begun is done, but not for graphs, and not longer than `limit`. For
  // what has not been done by then nobody waits again.
  void AwaitAborted(absl::Duration limit);

  // What a graph needs that captures operations.
  std::shared_ptr<const CaptureNeed> NeedOfCapture();

 private:
  // Waits until what Abort has begun is done, `of_graphs`: even if it waits for graphs. Not longer
  // than `limit`.
  void AwaitEndings(absl::Duration limit, bool of_graphs);
  // Holds the library's communicators. Null where there is none.
  struct Comms {
    ncclComm_t first = nullptr;     // does not block
    ncclComm_t blocking = nullptr;  // made from the first one; null: the library cannot
    ncclComm_t used() const { return blocking != nullptr ? blocking : first; }
  };
  // What the thread that ends communicators is told. Outlives both.
  struct EndingOrder {
    Mutex mutex;
    CondVar changed;
    bool given ABSL_GUARDED_BY(mutex) = false;
    Comms comms ABSL_GUARDED_BY(mutex);
    std::atomic<bool> done{false};
  };
  // That thread. It sleeps until Abort, which could not make one when there can be no more.
  struct Ending {
    std::thread thread;
    std::shared_ptr<EndingOrder> order;
    bool waits_for_graphs = false;
    bool given_up = false;  // it takes too long
  };

  static void End(const NcclLibrary& library, int device, const std::atomic<bool>& calling,
                  EndingOrder& order);
  absl::Status PrepareEnding() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Polls until the library is no longer busy with a call for the first communicator.
  absl::Status AwaitReady(absl::string_view call, absl::FunctionRef<bool()> go_on);

  const NcclLibrary& library_;
  Mutex mutex_;
  Comms comms_ ABSL_GUARDED_BY(mutex_);
  int device_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<CaptureNeed> need_ ABSL_GUARDED_BY(mutex_);  // null: nothing has been captured
  std::optional<Ending> prepared_ ABSL_GUARDED_BY(mutex_);  // for the communicators that there are
  std::vector<Ending> endings_ ABSL_GUARDED_BY(mutex_);
  // Whether the thread is in a call for the communicators that are there now.
  std::shared_ptr<std::atomic<bool>> calling_ ABSL_GUARDED_BY(mutex_);
  CallThread calls_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_RAILS_NCCL_COMMUNICATOR_H_
