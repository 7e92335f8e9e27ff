// Dispatch and combine as commonly written on top of another library's all-to-all. Dispatch sorts
// tokens by expert with a library's radix sort, exchanges the counts and copies them to the host,
// packs rows by destination, sends them and scatters them to their destination offsets. Combine
// does the reverse and computes a weighted sum.
//
// A RowTransport carries the bytes; everything else is the same for all transports.
#ifndef OCTET_TOOLS_CONTENDERS_SORTED_EXCHANGE_H_
#define OCTET_TOOLS_CONTENDERS_SORTED_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/ep_calls.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/memory/node_memory.h"
#include "tools/contenders/sorted_rows.h"

namespace octet {

// Rows that are contiguous in memory.
struct RowSegment {
  int64_t first = 0;
  int64_t rows = 0;
};

// One rank's memory on both sides of an exchange, of the same sizes on all ranks.
struct ExchangeBuffers {
  SortedSide sorted;    // this rank's rows, sent to experts and returned
  ArrivedSide arrived;  // this rank's experts' rows
  size_t row_bytes;
  int num_ranks;
  int num_local_experts;
  // In pinned memory, [R][L]: sorted.counts, and arrived.counts.
  int32_t* sent_counts;
  int32_t* arrived_counts;
  // By peer, after FinishCounts: the rows of the two sides that are exchanged with that peer.
  std::vector<RowSegment> sent;
  std::vector<RowSegment> received;
};

enum class Direction {
  kToExperts,  // sorted rows and flats become arrived rows and flats
  kToOrigin,   // arrived rows become sorted rows
};

// Carries bytes between GPUs. There is one for all ranks; each rank calls it for itself, all in the
// same order.
class RowTransport {
 public:
  virtual ~RowTransport() = default;
  virtual absl::string_view name() const = 0;

  // Takes the memory of all ranks. Must be called once, before anything else.
  virtual absl::Status Prepare(Rank& rank, const std::vector<ExchangeBuffers*>& buffers) = 0;

  // Enqueues the exchange of counts: sorted.counts of all ranks go to arrived.counts and to the
  // host.
  virtual absl::Status StartCounts(Rank& rank) = 0;
  // Waits on the host for the counts and fills sent and received; arrived.counts is valid in stream
  // order.
  virtual absl::Status FinishCounts(Rank& rank) = 0;

  // Enqueues the exchange of rows.
  virtual absl::Status Exchange(Rank& rank, Direction direction) = 0;

  // Returns the bytes that one rank's exchange of counts stores into other GPUs.
  virtual int64_t CountBytes(int num_ranks, int num_local_experts) const = 0;
};

class SortedExchange final : public EpCalls {
 public:
  // Returns OK if this supports `config`, apart from memory.
  static absl::Status Check(const EpConfig& config, int num_ranks);

  // Not during Run. The node must outlive it.
  static absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      Node& node, const EpConfig& config, std::unique_ptr<RowTransport> transport);
  ~SortedExchange() override;

  const EpConfig& config() const override { return config_; }
  absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchRequest& request) override;
  absl::StatusOr<DispatchHandle> DispatchSend(Rank& rank, const DispatchArgs& args) override;
  absl::StatusOr<Received> DispatchReceive(Rank& rank, const DispatchHandle& handle) override;
  absl::Status Combine(Rank& rank, const CombineRequest& request) override;
  absl::Status CombinePhase(Rank& rank, const CombineRequest& request, Phases phase) override;
  absl::Status CheckDispatch(const Rank& rank, const DispatchRequest& request,
                             Phases phases) const override;
  absl::Status CheckCombine(const Rank& rank, const CombineRequest& request) const override;
  absl::Status CheckReceivedIsValid(const Rank& rank, const DispatchHandle& handle) const override;
  Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const override;

  // Returns how many rows each of the rank's experts has received in its last DispatchSend, which
  // has waited for these numbers.
  std::vector<int32_t> ExpertRows(const Rank& rank);

 private:
  struct RankState;

  SortedExchange(Node& node, const EpConfig& config, std::unique_ptr<RowTransport> transport);
  absl::Status InitRank(Rank& rank);
  absl::Status LoadKernels(Rank& rank);
  RankState& StateOf(const Rank& rank) { return *ranks_[static_cast<size_t>(rank.rank())]; }
  const RankState& StateOf(const Rank& rank) const {
    return *ranks_[static_cast<size_t>(rank.rank())];
  }
  absl::Status Return(Rank& rank, const CombineRequest& request);
  absl::Status Sum(Rank& rank, const CombineRequest& request);

  Node& node_;
  const EpConfig config_;
  const SortedRowsShape shape_;
  const LaunchShape launch_;
  const int max_rows_;
  NodeMemory memory_;
  std::unique_ptr<RowTransport> transport_;
  std::vector<std::unique_ptr<RankState>> ranks_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_SORTED_EXCHANGE_H_
