#include "tools/contenders/memcpy_transport.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "octet/topology.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

absl::Status MemcpyTransport::Prepare(Rank& rank, const std::vector<ExchangeBuffers*>& buffers) {
  const auto r = static_cast<size_t>(rank.rank());
  RankState& mine = ranks_[r];
  mine.buffers = buffers[r];
  mine.rows.assign(ranks_.size(), std::vector<int64_t>(ranks_.size()));
  OCTET_ASSIGN_OR_RETURN(mine.counted, ScopedEvent::Create());
  for (ScopedEvent& sent : mine.sent) {
    OCTET_ASSIGN_OR_RETURN(sent, ScopedEvent::Create());
  }
  return absl::OkStatus();
}

absl::Status MemcpyTransport::StartCounts(Rank& rank) {
  RankState& mine = StateOf(rank.rank());
  const ExchangeBuffers& buffers = *mine.buffers;
  const auto experts =
      static_cast<size_t>(buffers.num_ranks) * static_cast<size_t>(buffers.num_local_experts);
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(buffers.sent_counts, buffers.sorted.counts,
                                           experts * sizeof(int32_t), hipMemcpyDeviceToHost,
                                           rank.stream()));
  return mine.counted.Record(rank.stream());
}

absl::Status MemcpyTransport::FinishCounts(Rank& rank) {
  RankState& mine = StateOf(rank.rank());
  ExchangeBuffers& buffers = *mine.buffers;
  const auto num_local = static_cast<size_t>(buffers.num_local_experts);
  const auto me = static_cast<size_t>(rank.rank());
  OCTET_RETURN_IF_ERROR(mine.counted.Wait(rank, "the copy of the counts to the host"));
  OCTET_RETURN_IF_ERROR(rank.Barrier());  // the counts of all ranks are on the host

  for (size_t source = 0; source < ranks_.size(); ++source) {
    const int32_t* counts = ranks_[source].buffers->sent_counts;
    for (size_t destination = 0; destination < ranks_.size(); ++destination) {
      const int32_t* begin = counts + destination * num_local;
      mine.rows[source][destination] = std::accumulate(begin, begin + num_local, int64_t{0});
    }
    std::copy_n(counts + me * num_local, num_local, buffers.arrived_counts + source * num_local);
  }
  RowSegment sent;
  RowSegment received;
  for (size_t peer = 0; peer < ranks_.size(); ++peer) {
    sent = buffers.sent[peer] = {sent.first + sent.rows, mine.rows[me][peer]};
    received = buffers.received[peer] = {received.first + received.rows, mine.rows[peer][me]};
  }
  return OCTET_GPU(hipMemcpyAsync(buffers.arrived.counts, buffers.arrived_counts,
                                  ranks_.size() * num_local * sizeof(int32_t),
                                  hipMemcpyHostToDevice, rank.stream()));
}

absl::Status MemcpyTransport::Exchange(Rank& rank, Direction direction) {
  RankState& mine = StateOf(rank.rank());
  const ExchangeBuffers& buffers = *mine.buffers;
  const bool to_experts = direction == Direction::kToExperts;
  const auto me = static_cast<size_t>(rank.rank());
  const std::vector<GpuInfo>& gpus = rank.node().topology().gpus;
  // Each rank begins with its right neighbour, so that no GPU is the destination of all others at
  // once.
  for (size_t i = 1; i <= ranks_.size(); ++i) {
    const size_t peer = (me + i) % ranks_.size();
    const RowSegment& from = to_experts ? buffers.sent[peer] : buffers.received[peer];
    if (from.rows == 0) continue;
    // The offset of this rank's rows on the peer.
    int64_t to = 0;
    for (size_t other = 0; other < me; ++other) {
      to += to_experts ? mine.rows[other][peer] : mine.rows[peer][other];
    }
    const ExchangeBuffers& theirs = *ranks_[peer].buffers;
    const auto copy = [&](void* dst, const void* src, size_t each) {
      return OCTET_GPU(hipMemcpyPeerAsync(
          static_cast<char*>(dst) + static_cast<size_t>(to) * each, gpus[peer].device,
          static_cast<const char*>(src) + static_cast<size_t>(from.first) * each, rank.device(),
          static_cast<size_t>(from.rows) * each, rank.stream()));
    };
    if (to_experts) {
      OCTET_RETURN_IF_ERROR(copy(theirs.arrived.rows, buffers.sorted.rows, buffers.row_bytes));
      OCTET_RETURN_IF_ERROR(
          copy(theirs.arrived.flats, buffers.sorted.sorted_flats, sizeof(int32_t)));
    } else {
      OCTET_RETURN_IF_ERROR(copy(theirs.sorted.rows, buffers.arrived.rows, buffers.row_bytes));
    }
  }
  const auto which = static_cast<size_t>(direction);
  OCTET_RETURN_IF_ERROR(mine.sent[which].Record(rank.stream()));
  OCTET_RETURN_IF_ERROR(rank.Barrier());  // the events of all ranks have been recorded
  for (const RankState& peer : ranks_) {
    OCTET_RETURN_IF_ERROR(peer.sent[which].Hold(rank.stream()));
  }
  return absl::OkStatus();
}

}  // namespace octet
