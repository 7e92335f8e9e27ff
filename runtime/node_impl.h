// The inside of Node.
#ifndef OCTET_RUNTIME_NODE_IMPL_H_
#define OCTET_RUNTIME_NODE_IMPL_H_

#include <hip/hip_runtime.h>

#include <atomic>
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
#include "absl/time/time.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/node_barrier.h"
#include "runtime/device/peers.h"
#include "runtime/failure_log.h"
#include "runtime/host_barrier.h"
#include "runtime/mutex.h"
#include "runtime/node.h"
#include "runtime/rank_threads.h"
#include "runtime/topology.h"

namespace octet {

class Node::Impl {
 public:
  Impl(Node* node, Topology topology, int num_ranks, absl::Duration timeout);
  ~Impl();

  // Threads, peer access, streams and control memory.
  absl::Status Start(bool pin_threads);

  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body);

  uint32_t AddClient(NodeClient* client);
  void RemoveClient(uint32_t id);

  absl::Status Synchronize(Rank& rank);
  HostBarrier& barrier() { return barrier_; }
  device::FailurePort failure_port(int rank, uint32_t client) const;
  absl::Status EnqueueNodeBarrier(Rank& rank);

  const Topology& topology() const { return topology_; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  absl::Duration timeout() const { return timeout_; }
  bool stuck() const { return stuck_; }

 private:
  // Pinned host memory, shared with all GPUs. Records apart, so that ranks do not share lines.
  struct HostControl {
    alignas(128) uint32_t abort_word;
    struct alignas(128) Records {
      device::FailureRecord record[device::kRecordsOfARank];
    };
    Records records[kMaxRanks];
  };
  // In each GPU's memory.
  struct GpuControl {
    alignas(128) uint32_t claimed[device::kRecordsOfARank];
    alignas(128) device::NodeBarrierState barrier;
  };

  absl::Status StartRank(Rank& rank, bool pin_thread);
  absl::Status EnablePeers(const Rank& rank);
  void StopRank(Rank& rank);

  // Runs `body` and then drains the stream, on all ranks. What fails goes into log_.
  void RunPhase(absl::FunctionRef<absl::Status(Rank&)> body);
  // Ends a capture that `body` has left behind.
  absl::Status RunBody(Rank& rank, absl::FunctionRef<absl::Status(Rank&)> body);
  // A rank has failed: releases everybody who waits on the host or on a GPU.
  void Fail(int rank, const absl::Status& status);
  // Polls until the stream is idle.
  absl::Status Drain(Rank& rank);
  // All ranks are idle: the records that kernels have written go into log_.
  void CollectRecords();
  // After a failure: waits until all streams are idle, which all waits were told to leave. An error
  // leaves the node broken.
  absl::Status DrainAll();
  // Then brings node and clients back. An error leaves the node broken.
  absl::Status Recover();

  // What every rank waited for when the first wait expired, and how far the flags had come: lines
  // to go below the sentence. Empty if no wait has expired.
  std::string DescribeWaits();
  std::string TablesOf(NodeClient& client, const std::vector<device::FailureRecord>& waits);

  // The meaning of a failure record, by the client that it belongs to.
  absl::Status DescribeRecord(int rank, const device::FailureRecord& record) const;
  std::vector<std::pair<uint32_t, NodeClient*>> Clients() const;
  // What a rank reports after its stream has drained while the node was being stopped.
  absl::Status WhyStopped() const;

  bool AbortRaised() const;
  // The rank's first failure, or its first wait that was told to leave. False if there is none.
  bool ReadRecord(int rank, device::FailureKind kind, device::FailureRecord* record) const;
  void ResetHostControl();

  const Topology topology_;
  const absl::Duration timeout_;
  std::vector<Rank> ranks_;
  std::unique_ptr<RankThreads> threads_;
  HostBarrier barrier_;
  const bool spin_;

  HostControl* host_control_ = nullptr;
  std::vector<GpuControl*> gpu_control_;  // by rank

  std::atomic<bool> running_{false};
  // The body or stream of a rank has failed: the abort word may be raised without any record.
  std::atomic<bool> host_failed_{false};
  // A stream did not drain: nothing on the GPUs may be freed, since that would wait for it.
  std::atomic<bool> stuck_{false};
  FailureLog log_;
  absl::Status broken_;

  mutable Mutex clients_mutex_;
  std::map<uint32_t, NodeClient*> clients_ ABSL_GUARDED_BY(clients_mutex_);
  uint32_t next_client_ ABSL_GUARDED_BY(clients_mutex_) = 1;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_IMPL_H_
