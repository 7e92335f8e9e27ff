// Transports rows by the copy engines: hipMemcpyPeerAsync to each peer in turn.
#ifndef OCTET_TOOLS_CONTENDERS_MEMCPY_TRANSPORT_H_
#define OCTET_TOOLS_CONTENDERS_MEMCPY_TRANSPORT_H_

#include <array>
#include <vector>

#include "octet/peers.h"
#include "runtime/gpu/scoped_event.h"
#include "tools/contenders/sorted_exchange.h"

namespace octet {

// All ranks are threads of one process. They exchange counts in host memory, and a rank learns from
// its peers' events when their copies have arrived.
class MemcpyTransport final : public RowTransport {
 public:
  explicit MemcpyTransport(int num_ranks) : ranks_(static_cast<size_t>(num_ranks)) {}

  absl::string_view name() const override { return "memcpy_peer"; }
  absl::Status Prepare(Rank& rank, const std::vector<ExchangeBuffers*>& buffers) override;
  absl::Status StartCounts(Rank& rank) override;
  absl::Status FinishCounts(Rank& rank) override;
  absl::Status Exchange(Rank& rank, Direction direction) override;
  int64_t CountBytes(int /*num_ranks*/, int /*num_local_experts*/) const override { return 0; }

 private:
  struct RankState {
    ExchangeBuffers* buffers = nullptr;
    ScopedEvent counted;
    // One for each direction, so that a rank that is ahead does not record an event that others
    // still wait for.
    std::array<ScopedEvent, 2> sent;
    // [source][destination], the same on all ranks.
    std::vector<std::vector<int64_t>> rows;
  };
  RankState& StateOf(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  std::vector<RankState> ranks_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_MEMCPY_TRANSPORT_H_
