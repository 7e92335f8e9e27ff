// The memory of LoadCounters on all ranks.
#ifndef OCTET_KERNELS_EP_BASE_LOAD_COUNTING_H_
#define OCTET_KERNELS_EP_BASE_LOAD_COUNTING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ep/device/load_counters.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/memory/node_memory.h"

namespace octet {

class LoadCounting {
 public:
  explicit LoadCounting(int num_ranks) : ranks_(static_cast<size_t>(num_ranks)) {}

  // On the rank's thread, before any call: takes memory for its `num_experts` experts, if `options`
  // ask for it, and enqueues its initialisation.
  absl::Status InitRank(Rank& rank, const LoadOptions& options, int num_experts,
                        NodeMemory& memory);
  bool counts() const { return ranks_.front().counters.totals != nullptr; }
  // Returns the counters of the rank's kernels.
  const LoadCounters& of(int rank) const { return ranks_[static_cast<size_t>(rank)].counters; }

  // Any thread, at any time: returns the counters of the experts of all ranks, rank by rank.
  ExpertLoads Read() const;
  // The same of one rank.
  ExpertLoads Read(int rank) const;

  // Enqueue zeros: all counters, or what windows are made of, before epochs are reset.
  absl::Status Reset(Rank& rank) const;
  absl::Status ClearWindow(Rank& rank) const;

 private:
  struct OfRank {
    LoadCounters counters = {};
    absl::Span<uint64_t> totals;
    absl::Span<LoadCounters::Window> windows;
    absl::Span<uint32_t> calls;
    absl::Span<uint64_t> published;
  };

  std::vector<OfRank> ranks_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_LOAD_COUNTING_H_
