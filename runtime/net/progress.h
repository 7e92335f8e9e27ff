// The thread of a World that makes all calls of its Link.
#ifndef OCTET_RUNTIME_NET_PROGRESS_H_
#define OCTET_RUNTIME_NET_PROGRESS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/backoff.h"
#include "runtime/base/mutex.h"
#include "runtime/net/link.h"

namespace octet {

// What one rank exchanges with one node, in pinned host memory.
struct StagedPart {
  char* send = nullptr;
  size_t send_bytes = 0;
  char* recv = nullptr;
  size_t recv_bytes = 0;
};

// One exchange of one rank. The memory stays until the exchange has ended or, after a failed Run,
// Realign has.
struct PostedExchange {
  int rail = 0;
  uint64_t number = 0;            // of this rank's exchanges, 1, 2, ...
  uint64_t* arrived = nullptr;    // [node]: becomes `number` when the exchange with it has ended
  std::vector<StagedPart> parts;  // [node]
};

// Any thread may call any function, unless it says otherwise. Other processes are told that this
// one lives, and watched in turn. When one of them is lost, or calls do not agree, everything is
// *broken*: all processes are told so, and all calls return the reason.
class Progress {
 public:
  // Called on the thread of Progress; must return soon, and not call Stop.
  class Listener {
   public:
    virtual ~Listener() = default;
    // `node` has announced that it has failed in Run number `run`.
    virtual void OnNodeFailed(int node, uint64_t run, const absl::Status& failure) = 0;
    // What has come from another node is not what this one expects.
    virtual void OnExchangeFailed(const absl::Status& failure) = 0;
    virtual void OnBroken(const absl::Status& reason) = 0;
  };

  // Calls Stop. Does not delete what a thread that is left behind may still use.
  struct End {
    void operator()(Progress* progress) const;
  };
  using Pointer = std::unique_ptr<Progress, End>;

  // Starts the thread, which opens the Link. `listener` must outlive the Progress. Returns
  // kDeadlineExceeded if the other processes have not come within `limit`, and leaves the thread
  // behind.
  static absl::StatusOr<Pointer> Start(Listener* listener, absl::Duration limit);

  // Ends the thread; without Finish, or after its error, the Link is not closed in an orderly way.
  // Returns kDeadlineExceeded if that has taken longer than Start's limit, and leaves the thread
  // behind: in MPI_Finalize, or in another call of MPI that does not return. Idempotent. Nothing
  // else may be called afterwards but left_unfinished.
  absl::Status Stop();

  int node() const { return node_; }
  int num_nodes() const { return num_nodes_; }

  // ---- between all nodes; one thread at a time

  // Returns `bytes` of all nodes, by node. All of them must make the same `call` within `limit`.
  absl::StatusOr<std::vector<std::string>> Gather(const std::string& call, std::string bytes,
                                                  absl::Duration limit);
  // From now on a node that is silent for `silence` is lost. `names` are for errors.
  void WatchNodes(absl::Duration silence, std::vector<std::string> names);
  // After a failed Run: receives what is left of its exchanges and forgets them. `posted[n]` is
  // what Posted returned on node n.
  absl::Status Realign(std::vector<std::vector<uint64_t>> posted, absl::Duration limit);
  // The end of all calls; Stop must follow.
  absl::Status Finish(absl::Duration limit);

  // ---- exchanges

  void SetNumRails(int num_rails);
  // Says that Post follows soon, whose exchange then begins at once. Optional.
  void Wake();
  void Post(PostedExchange exchange);
  // The exchanges posted since the last Realign, by rail.
  std::vector<uint64_t> Posted() const;

  // ---- failures

  // Tells all nodes of a failure in Run number `run`.
  void Announce(uint64_t run, const absl::Status& failure);
  // From now on everything is broken.
  void Break(const absl::Status& reason);
  // Returns the reason if everything is broken.
  absl::Status broken() const;
  // After Stop: the memory of exchanges may still be in use.
  bool left_unfinished() const { return left_behind_ || left_unfinished_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Gathered {
    std::string call;
    std::string bytes;
  };
  struct RailPeer {
    std::optional<Link::Ticket> send;
    std::optional<Link::Ticket> receive;
    size_t expected = 0;    // bytes of `receive`
    uint64_t received = 0;  // messages since the last Realign
    bool cancelled = false;
    bool awaited = false;  // the exchange with this node has not ended
    std::string unwanted;  // what Realign receives
  };
  struct RailState {
    PostedExchange exchange;  // the last one
    std::vector<RailPeer> peers;
  };
  struct Peer {
    Clock::time_point last_heard;
    // How long the thread has listened since. It is less than what has passed if the thread itself
    // has not run for a while: then it has heard nobody, who may well live.
    absl::Duration listened;
    bool lost = false;
  };
  // The beginning and the end of the thread. It may be left behind in both, and then uses nothing
  // else.
  struct Course {
    LinkOpening opening;
    Mutex mutex;
    CondVar changed;
    bool opened ABSL_GUARDED_BY(mutex) = false;  // or not: start_status_
    bool looped ABSL_GUARDED_BY(mutex) = false;  // the Progress is no longer used
    bool closed ABSL_GUARDED_BY(mutex) = false;
  };
  // What other threads have asked for.
  struct Work {
    std::vector<PostedExchange> posted;
    std::vector<std::string> texts;  // for all other nodes
    absl::Duration silence;
    absl::Status broken;
    bool realign = false;
    bool quiet = false;
    bool awake = false;  // Wake
    bool stop = false;
  };

  Progress(Listener* listener, absl::Duration limit) : limit_(limit), listener_(listener) {}
  ~Progress() = default;

  // ---- any thread
  void BreakLocked(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until `gathered_` has something of all nodes.
  absl::Status AwaitGathered(const std::string& call, absl::Duration limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string NameLocked(int node) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Waits until the Link has been opened.
  absl::Status AwaitOpened();
  // Waits until `done` is true, but for no longer than `limit_` since `start`. Returns it.
  bool AwaitCourse(bool Course::* done, Clock::time_point start);

  // ---- the thread
  void TellListener(absl::FunctionRef<void(Listener&)> tell);
  static void Thread(const std::shared_ptr<Course>& course, Progress* progress);
  // Takes what Link::Open has returned.
  void Take(absl::StatusOr<std::unique_ptr<Link>> link);
  // Returns whether the Link is to be closed in an orderly way.
  bool Loop();
  // Sleeps if there is nothing to do but to listen.
  Work TakeWork(bool busy);
  // Each returns whether anything has happened.
  bool SendTexts(const Work& work);
  bool ReceiveTexts();
  bool PollExchanges();
  bool PollRealign();
  void WatchPeers(const Work& work);
  void TellBroken(const Work& work);
  // Waits a little for what is under way. Returns whether nothing is.
  bool SendLast();

  void SendText(int node, const std::string& text);
  void Receive(int node, const std::string& text);
  void ResizeRails(size_t least);
  void Begin(PostedExchange exchange);
  bool PollExchange(int rail, int node);
  // Begins to receive the next message of an exchange that is no longer wanted, if it has come.
  absl::Status ReceiveUnwanted(int rail, int node);
  // Returns whether nothing is left of the exchanges with `node`, of which it has posted `posted`.
  bool RealignPeer(int rail, int node, uint64_t posted);
  // Returns what Link::Poll does, nullopt without a ticket; an error loses the node and ends the
  // message.
  std::optional<Link::Ended> Poll(int node, std::optional<Link::Ticket>* ticket);
  void Lose(int node, absl::string_view why);
  int TagOf(int rail) const;
  bool IsExchanging() const;
  // Returns how the thread backs off, given that the ranks' threads may poll at the same time.
  Backoff::Cores CoresForPolls() const {
    return rails_.size() + 1 > num_cpus_ ? Backoff::Cores::kFew : Backoff::Cores::kShared;
  }

  const absl::Duration limit_;
  const std::shared_ptr<Course> course_ = std::make_shared<Course>();
  std::thread thread_;
  int node_ = 0;
  int num_nodes_ = 0;
  bool left_unfinished_ = false;  // the thread's, until it has ended
  bool left_behind_ = false;      // the thread, in a call of the Link, and this object for it

  Mutex listener_mutex_;
  Listener* listener_ ABSL_GUARDED_BY(listener_mutex_);  // null: the thread is left behind

  mutable Mutex mutex_;
  CondVar wake_;     // the thread
  CondVar changed_;  // those who wait for it
  absl::Status start_status_ ABSL_GUARDED_BY(mutex_);
  Work work_ ABSL_GUARDED_BY(mutex_);
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // somebody waits for messages
  uint64_t turns_ ABSL_GUARDED_BY(mutex_) = 0;    // of the thread
  bool orderly_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::deque<Gathered>> gathered_ ABSL_GUARDED_BY(mutex_);  // by node
  std::vector<uint64_t> posted_ ABSL_GUARDED_BY(mutex_);                // by rail
  std::vector<std::vector<uint64_t>> realign_ ABSL_GUARDED_BY(mutex_);  // empty: none is asked for

  // Used by the thread only.
  std::unique_ptr<Link> link_;
  std::vector<Peer> peers_;
  std::vector<RailState> rails_;
  size_t num_cpus_ = 0;  // that this process may use, divided by the processes of this computer
  std::vector<std::vector<uint64_t>> realigning_;
  uint64_t generation_ = 0;  // the number of Realigns
  Clock::time_point last_watch_;
  Clock::time_point last_alive_;
  bool told_broken_ = false;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_PROGRESS_H_
