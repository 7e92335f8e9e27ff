// The memory of LoadCounters on all ranks.
#ifndef OCTET_KERNELS_EP_BASE_LOAD_COUNTING_H_
#define OCTET_KERNELS_EP_BASE_LOAD_COUNTING_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/device/load_counters.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/base/mutex.h"
#include "runtime/memory/node_memory.h"

namespace octet {

class LoadCounting {
 public:
  explicit LoadCounting(Node& node);
  // As NodeMemory: leaves the streams if the node is not ready for their end.
  ~LoadCounting();
  LoadCounting(const LoadCounting&) = delete;
  LoadCounting& operator=(const LoadCounting&) = delete;

  // On the rank's thread, before any call: takes memory for `num_counters` counters, if `options`
  // ask for it, and enqueues its initialisation. They are of the rank's local experts.
  absl::Status InitRank(Rank& rank, const LoadOptions& options, int num_counters);
  bool counts() const { return ranks_.front().counters.totals != nullptr; }
  // Likewise, after InitRank: from now on the counters are of `num_experts` experts, and the rank's
  // later calls count those that `locals`, memory of its GPU, has for them (LoadCounters).
  absl::Status CountExperts(Rank& rank, int num_experts);
  void SetLocals(const Rank& rank, const int32_t* locals) {
    ranks_[static_cast<size_t>(rank.rank())].counters.locals = locals;
  }
  // Returns the counters of the rank's kernels.
  const LoadCounters& of(int rank) const { return ranks_[static_cast<size_t>(rank)].counters; }

  // Any thread, at any time: returns the counters of all ranks, rank by rank. Waits for a kernel on
  // a stream of its own on each GPU.
  absl::StatusOr<ExpertLoads> Read() const;
  // The same of one rank.
  absl::StatusOr<ExpertLoads> Read(int rank) const;

  // Enqueue zeros: all counters, or what windows are made of, before epochs are reset.
  absl::Status Reset(Rank& rank) const;
  absl::Status ClearWindow(Rank& rank) const;

 private:
  struct OfRank {
    LoadCounters counters = {};
    absl::Span<uint64_t> totals;
    absl::Span<uint64_t> calls;
    absl::Span<uint64_t> read;  // pinned: ReadLoadsParams::read
    hipStream_t stream = nullptr;
  };

  absl::Status Allocate(OfRank& mine, int num_counters);
  absl::Status EnqueueRead(int rank) const;
  absl::Status AppendRead(int rank, ExpertLoads& loads) const;

  const std::shared_ptr<Node> node_;
  NodeMemory memory_;
  std::vector<OfRank> ranks_;
  mutable Mutex reading_;  // OfRank::read and stream
};

// Returns the bytes of a rank's counters.
size_t LoadCounterBytes(const LoadOptions& options, int num_counters);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_LOAD_COUNTING_H_
