// The implementation of Node.
#ifndef OCTET_RUNTIME_NODE_NODE_IMPL_H_
#define OCTET_RUNTIME_NODE_NODE_IMPL_H_

#include <hip/hip_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/base/backoff.h"
#include "runtime/base/mutex.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/node_barrier.h"
#include "runtime/failure/failure_log.h"
#include "runtime/node/host_barrier.h"
#include "runtime/node/node_client.h"
#include "runtime/node/rank_threads.h"

namespace octet {

// Outlives the Node as long as an object made on it lives (Node::Share).
class Node::Impl {
 public:
  // `options` must be resolved: no field asks for its default.
  // `adopted`: for Call and Settle (Node::Adopt).
  Impl(Topology topology, NodeOptions options, bool adopted = false);

  // Creates threads, peer access, streams and control memory. `node` is what Rank::node() returns.
  absl::Status Start(Node& node);
  // Releases all of it, if the node is ReadyToFree. Nothing runs afterwards. Idempotent.
  void Stop();

  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body);

  // See Node: adopted_calls.cc.
  absl::Status Call(int rank, GpuStream stream, absl::FunctionRef<absl::Status(Rank&)> body);
  absl::Status Settle();

  // See NodeClient::Release.
  void Release(const absl::Status& status);

  uint32_t AddClient(NodeClient* client, std::string name);
  void RemoveClient(uint32_t id);
  uint32_t AddCaller(std::string name);
  void RemoveCaller(uint32_t id);

  absl::Status Synchronize(Rank& rank);
  absl::Status WaitUntil(Rank& rank, absl::FunctionRef<bool()> done, absl::string_view what);
  // Must be called on the rank's thread inside Run.
  absl::Status CheckComplete(const Rank& rank) const;
  HostBarrier& barrier() { return barrier_; }
  device::FailurePort failure_port(int rank, uint32_t client) const;
  absl::Status EnqueueNodeBarrier(Rank& rank);

  const Topology& topology() const { return topology_; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  absl::Duration timeout() const { return options_.timeout; }
  uint64_t completed_runs() const { return completed_runs_; }
  bool stuck() const { return stuck_; }
  bool ReadyToFree();

 private:
  // The client id of kernels that the node itself launches.
  static constexpr uint32_t kNodeClient = 0;
  // Kernels that are told to leave their waits end much sooner. A stream that is busy for longer
  // has other work.
  static constexpr absl::Duration kBusyToTell = absl::Milliseconds(250);

  // Pinned host memory, shared with all GPUs. Aligned so that ranks do not share cache lines.
  struct HostControl {
    alignas(128) uint32_t abort_word;
    struct alignas(128) Records {
      device::FailureRecord record[device::kRecordsOfARank];
    };
    Records records[kMaxRanks];
  };
  // Memory on each GPU.
  struct GpuControl {
    alignas(128) uint32_t claimed[device::kRecordsOfARank];
    alignas(128) device::NodeBarrierState barrier;
  };

  // The state of a rank's stream since the first failure of the Run. Only the rank's thread writes
  // it.
  struct StreamState {
    // How long after that failure the stream was last seen busy. Zero: never.
    absl::Duration busy;
    bool gave_up = false;  // the stream was still busy when the wait for it gave up
  };
  using Time = std::chrono::steady_clock::time_point;

  absl::Status StartRank(Rank& rank);
  absl::Status EnablePeers(const Rank& rank);
  void StopRank(Rank& rank);

  // Begin and end a Run, or a time of Calls, once all have been drained. EndRun returns the cause
  // of a failure, and recovers from it.
  void BeginRun();
  absl::Status EndRun();
  // Returns an error if the node is broken or destroyed.
  absl::Status WhyUnusable() const;

  // An adopted node has these.
  struct CallOf;
  absl::Status BeginCall(int rank, GpuStream stream) ABSL_LOCKS_EXCLUDED(calls_mutex_);
  void EndCall(int rank) ABSL_LOCKS_EXCLUDED(calls_mutex_);
  // Returns `status`, with what is wrong if it has waited for a rank that nobody calls.
  absl::Status Explained(const absl::Status& status) ABSL_LOCKS_EXCLUDED(calls_mutex_);
  absl::Status CheckSettles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mutex_);
  // Makes the ranks' streams the last ones that Calls have used, or those of the node.
  void UseCallersStreams() ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mutex_);
  void UseOwnStreams();
  // For destructors: settles if nobody is in a call.
  void SettleToFree() ABSL_LOCKS_EXCLUDED(calls_mutex_);

  // Forgets the failures of the phase before.
  void BeginPhase();
  void SetReleasable(bool releasable);
  // Runs `body` and then drains the stream, on all ranks, after BeginPhase. Adds failures to log_.
  void RunPhase(absl::FunctionRef<absl::Status(Rank&)> body);
  // Runs `body`, ends a capture that it left open, and reports outstanding work that it left.
  absl::Status RunBody(Rank& rank, absl::FunctionRef<absl::Status(Rank&)> body);
  // Records the failure of a rank and releases every wait on the host and on the GPUs.
  void Fail(int rank, const absl::Status& status);
  // Returns true for the first failure noticed in a Run; on_failure must then be called.
  bool IsFirstNoticed();
  void Notice(const absl::Status& status);
  void Tell(const absl::Status& status) const;
  // Notices that a GPU, or Release, has told the node to stop.
  void NoticeAbort();
  // For callers that have polled the rank's stream since `start` and found it busy: returns false
  // when the wait has taken long enough (NodeOptions::timeout).
  bool MayStillWait(const Rank& rank, Time start);
  // Polls until the rank's stream is idle.
  absl::Status Drain(Rank& rank) { return Drain(rank, rank.stream_); }
  // Likewise for any stream of the rank's device.
  absl::Status Drain(Rank& rank, hipStream_t stream);
  // Adds the records written by kernels to log_. All ranks must be idle.
  void CollectRecords();
  // Waits until all streams are idle, after a failure and once all waits have been told to end. An
  // error leaves the node broken.
  absl::Status DrainAll();
  // Lets go of the graphs that this Run has launched.
  void ForgetGraphs();
  // Then recovers the node and its clients. An error leaves the node broken.
  absl::Status Recover();

  // Describes what every rank waited for when the first wait expired, whose stream was busy with
  // other work and, if all streams are idle, how far the flags had come, as lines that follow the
  // sentence. Empty if no wait on a GPU has expired and no stream was busy.
  std::string DescribeWaits(bool idle);
  // Returns what `rank` waited for, in one line.
  std::string WaitLine(int rank, const device::FailureRecord& wait) const;
  // Returns "; its stream ...", or empty if the stream was not busy for long after the failure.
  std::string BusyText(int rank) const;
  // Returns platform::WhatHolds of the rank's device, or what it returned before in this Run.
  std::string WhatHolds(int rank) const;
  std::string TablesOf(NodeClient& client, const std::vector<device::FailureRecord>& waits);

  // Returns the failure in a record, worded by the client that it belongs to; with it, what has
  // held the device that the rank waited for.
  absl::Status DescribeRecord(int rank, const device::FailureRecord& record) const;
  absl::Status WordedByClient(int rank, const device::FailureRecord& record) const;
  std::vector<std::pair<uint32_t, NodeClient*>> Clients() const;
  // Returns the name of a caller or client; empty if it has none.
  std::string NameOf(uint32_t caller) const;
  // Likewise, in quotes.
  std::string TextOf(uint32_t caller) const;
  // Returns what a rank reports if its stream has drained while the node was being stopped.
  absl::Status WhyStopped() const;

  bool AbortRaised() const;
  // Reads the rank's first failure, or its first wait that was told to leave. Returns false if
  // there is none.
  bool ReadRecord(int rank, device::FailureKind kind, device::FailureRecord* record) const;
  void ResetHostControl();

  const Topology topology_;
  const NodeOptions options_;
  const bool adopted_;
  std::vector<Rank> ranks_;
  std::vector<GpuStream> own_streams_;  // by rank
  std::unique_ptr<RankThreads> threads_;
  HostBarrier barrier_;
  const Backoff::Cores cores_;

  HostControl* host_control_ = nullptr;
  std::vector<GpuControl*> gpu_control_;  // by rank

  std::atomic<bool> running_{false};
  std::atomic<uint64_t> completed_runs_{0};
  // Clients of the current Run; constant while it lasts.
  std::vector<std::pair<uint32_t, NodeClient*>> run_clients_;
  // The body or stream of a rank has failed: the abort word may be raised without any record.
  std::atomic<bool> host_failed_{false};
  // Release has stopped the Run: release_status_ says why.
  std::atomic<bool> released_{false};
  Mutex release_mutex_;
  absl::Status release_status_;                              // constant once released_
  bool releasable_ ABSL_GUARDED_BY(release_mutex_) = false;  // a Run executes its bodies
  // When the first failure of the Run was noticed. The clock's epoch: no failure yet.
  std::atomic<Time> failed_at_{Time()};
  std::vector<StreamState> streams_;  // by rank
  // A stream did not drain: nothing on the GPUs may be freed, since freeing would wait for it.
  std::atomic<bool> stuck_{false};
  std::atomic<bool> told_unfreed_{false};
  FailureLog log_;
  absl::Status broken_;

  // A rank's calls since the last Settle, where the node is adopted.
  struct CallsOfRank {
    bool in_call = false;
    bool called = false;
    GpuStream stream = nullptr;  // of the last call
  };
  Mutex calls_mutex_;
  bool calling_ ABSL_GUARDED_BY(calls_mutex_) = false;  // since the first call; running_ is set
  std::vector<CallsOfRank> calls_ ABSL_GUARDED_BY(calls_mutex_);  // by rank
  absl::Status unreported_ ABSL_GUARDED_BY(calls_mutex_);         // what SettleToFree has found

  mutable Mutex held_mutex_;
  mutable std::vector<std::string> held_ ABSL_GUARDED_BY(held_mutex_);  // by rank; of this Run

  mutable Mutex clients_mutex_;
  std::map<uint32_t, NodeClient*> clients_ ABSL_GUARDED_BY(clients_mutex_);
  std::map<uint32_t, std::string> names_ ABSL_GUARDED_BY(clients_mutex_);  // those that are named
  uint32_t next_client_ ABSL_GUARDED_BY(clients_mutex_) = 1;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_NODE_IMPL_H_
