// Rails through the host's memory: copies to pinned memory, messages, copies back.
//
//   stream   ... copies to the host, host function, kernel that waits, copies to the GPU ...
//                                      |  posts         ^  arrived[node] = number
//   Progress                           +--> messages ---+
//
// The host function only posts, so that host functions of other ranks can follow. The kernel waits
// like all kernels do: with the node's deadline, and until the node is told to stop.
#ifndef OCTET_RUNTIME_NET_RAILS_STAGED_RAIL_H_
#define OCTET_RUNTIME_NET_RAILS_STAGED_RAIL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/node.h"
#include "runtime/device/failure_record.h"
#include "runtime/memory/node_memory.h"
#include "runtime/net/progress.h"
#include "runtime/net/rails/arrival.h"
#include "runtime/net/rails/rail.h"
#include "runtime/net/rails/rails.h"

namespace octet {

class StagedRail;

// The rails of all ranks of a node.
class StagedRails final : public Rails {
 public:
  // Not inside Run.
  static absl::StatusOr<std::unique_ptr<StagedRails>> Create(Node& node, Progress& progress);
  // After the end of `progress`. Leaves memory unfreed that it has left unfinished.
  ~StagedRails() override;

  // Rails
  RailTransport transport() const override { return RailTransport::kMpi; }
  Rail& rail(int rank) const override;
  std::string Report() const override;
  absl::Status Realign(absl::Span<const std::string> reports, absl::Duration limit) override;
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;

 private:
  friend class StagedRail;
  StagedRails(Node& node, Progress& progress);

  std::unique_ptr<NodeMemory> memory_;
  std::vector<std::unique_ptr<StagedRail>> rails_;  // by rank
};

class StagedRail : public Rail {
 public:
  StagedRail(StagedRails& rails, int rank) : rails_(rails), rank_(rank) {}

  int node() const override { return rails_.progress_.node(); }
  int num_nodes() const override { return rails_.progress_.num_nodes(); }
  absl::Status Reserve(size_t send_bytes, size_t recv_bytes) override;
  int compute_units() const override { return 1; }
  void Wake() override {
    if (num_nodes() > 1) rails_.progress_.Wake();
  }
  absl::Status ExchangeOn(GpuStream stream, Rank& rank, absl::Span<const RailPart> parts) override;
  absl::Status ExchangeCounts(Rank& rank, absl::Span<const int32_t> sent,
                              absl::Span<int32_t> received) override;

 private:
  friend class StagedRails;

  // What a host function needs. A graph may call it as long as the rail lives.
  struct Call {
    StagedRail* rail = nullptr;
    std::vector<StagedPart> parts;  // of each node
    const uint32_t* abort_word = nullptr;
    std::atomic<bool> free{false};  // the host function has run and will not run again
    bool captured = false;
  };

  absl::Status Check(const Rank& rank, absl::Span<const RailPart> parts) const;
  // Returns where what each node gets and gives lies in the staging, a node's parts in order.
  std::vector<StagedPart> Place(absl::Span<const RailPart> parts) const;
  absl::Status CopyToHost(const Call& call, absl::Span<const RailPart> parts,
                          hipStream_t stream) const;
  absl::Status CopyToGpu(const Call& call, absl::Span<const RailPart> parts,
                         hipStream_t stream) const;
  Call& NewCall();
  static void RunCall(void* call);
  // Posts the next exchange, unless the node is told to stop.
  void Post(const std::vector<StagedPart>& parts, const uint32_t* abort_word);
  // Enqueues the wait for the exchange that has been posted last by then.
  absl::Status EnqueueAwait(hipStream_t stream, Rank& rank, const device::FailurePort& port);

  StagedRails& rails_;
  const int rank_;
  absl::Span<char> send_;
  absl::Span<char> recv_;
  absl::Span<uint64_t> posted_;          // one word: the number of the last exchange
  absl::Span<uint64_t> arrived_;         // [node]
  absl::Span<int32_t> sent_counts_;      // [node]
  absl::Span<int32_t> received_counts_;  // [node]
  std::deque<Call> calls_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_RAILS_STAGED_RAIL_H_
