#include "kernels/ep/base/load_counting.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/ep/base/fill_memory.h"
#include "runtime/base/status_macros.h"

namespace octet {

absl::Status LoadCounting::InitRank(Rank& rank, const LoadOptions& options, int num_experts,
                                    NodeMemory& memory) {
  if (!options.count) return absl::OkStatus();
  OfRank& mine = ranks_[static_cast<size_t>(rank.rank())];
  const auto experts = static_cast<size_t>(num_experts);
  const int window = std::max(options.window, 1);
  const auto slots = std::bit_ceil(static_cast<size_t>(window));
  OCTET_ASSIGN_OR_RETURN(mine.totals, memory.Device<uint64_t>(experts));
  OCTET_ASSIGN_OR_RETURN(mine.windows, memory.Device<LoadCounters::Window>(experts));
  OCTET_ASSIGN_OR_RETURN(mine.calls, memory.Device<uint32_t>(slots * experts));
  OCTET_ASSIGN_OR_RETURN(mine.published, memory.Pinned<uint64_t>(2 * experts));
  mine.counters = {.totals = mine.totals.data(),
                   .windows = mine.windows.data(),
                   .calls = mine.calls.data(),
                   .published = mine.published.data(),
                   .num_experts = num_experts,
                   .window = window,
                   .slots = static_cast<int>(slots)};
  return Reset(rank);
}

ExpertLoads LoadCounting::Read(int rank) const {
  const OfRank& of = ranks_[static_cast<size_t>(rank)];
  const auto read = [&](size_t first) {
    std::vector<int64_t> counts(of.published.size() / 2);
    for (size_t e = 0; e < counts.size(); ++e) {
      const std::atomic_ref counter(of.published[first + e]);
      counts[e] = static_cast<int64_t>(counter.load(std::memory_order_relaxed));
    }
    return counts;
  };
  return {.rows = read(0), .window = read(of.published.size() / 2)};
}

ExpertLoads LoadCounting::Read() const {
  ExpertLoads all;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const ExpertLoads mine = Read(static_cast<int>(rank));
    all.rows.insert(all.rows.end(), mine.rows.begin(), mine.rows.end());
    all.window.insert(all.window.end(), mine.window.begin(), mine.window.end());
  }
  return all;
}

absl::Status LoadCounting::Reset(Rank& rank) const {
  const OfRank& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.totals, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.published, 0));
  return ClearWindow(rank);
}

absl::Status LoadCounting::ClearWindow(Rank& rank) const {
  const OfRank& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.windows, 0));
  return Fill(rank, mine.calls, 0);
}

}  // namespace octet
