// The calls of an ExpertParallel, as strategies and calls over several nodes implement them. What
// the public class does not offer travels in the requests: products that a call is fused with, rows
// that come or leave while a call runs, a stand-in for experts.
#ifndef OCTET_KERNELS_EP_EP_CALLS_H_
#define OCTET_KERNELS_EP_EP_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/base/call_sequence.h"
#include "kernels/ep/base/load_counting.h"
#include "kernels/ep/combine_product.h"
#include "kernels/ep/device/row_arrivals.h"
#include "kernels/ep/device/row_departures.h"
#include "kernels/ep/dispatch_product.h"
#include "octet/domain.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/received.h"
#include "octet/trace.h"

namespace octet {

struct DispatchRequest {
  DispatchArgs args;
  // Rows of x that come while the dispatch runs. Its waits within the node then get twice the
  // node's timeout. The memory must outlive the dispatch.
  RowArrivals arrivals = {};
  // Also computes this product of the rows that are received. PrepareDispatchGemm comes first.
  const DispatchProduct* product = nullptr;
  // A dispatch that a rank has too little room for (EpConfig::capacity_rows) is no failure: it
  // moves nothing and delivers no rows, and must not be combined. RowsNeeded tells; until then the
  // caller may enqueue what reads the delivery. All ranks say the same. Not while a graph is
  // captured.
  bool may_lack_room = false;
};

struct CombineRequest {
  DispatchHandle handle;
  CombineArgs args;
  // Which rows of y are complete while the combine still runs. The memory must outlive it.
  RowDepartures departures = {};
  // First computes args.expert_out. PrepareGemmCombine comes first.
  const CombineProduct* product = nullptr;
  // [L] or nullptr: multiplies each row of expert_out by its expert's factor and rounds it to the
  // dtype, in place of experts. Not with Output::kDeduplicated.
  const float* expert_scale = nullptr;
};

// The contracts of calls, masks and statistics are those of ExpertParallel.
class EpCalls {
 public:
  virtual ~EpCalls() = default;

  virtual const EpConfig& config() const = 0;

  virtual absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchRequest& request) = 0;
  virtual absl::Status Combine(Rank& rank, const CombineRequest& request) = 0;
  // One phase at a time. Default: kUnimplemented.
  virtual absl::StatusOr<DispatchHandle> DispatchSend(Rank& rank, const DispatchArgs& args);
  virtual absl::StatusOr<Received> DispatchReceive(Rank& rank, const DispatchHandle& handle);
  virtual absl::Status CombinePhase(Rank& rank, const CombineRequest& request, Phases phase);

  // Waits on the host until the counts of the rank's last dispatch, one with may_lack_room, are
  // known, but not for its rows. Returns the rows that the rank with the most needs, the same on
  // all ranks: more than EpConfig::max_rows if the dispatch has moved nothing. Default:
  // kUnimplemented.
  virtual absl::StatusOr<int> RowsNeeded(Rank& rank);

  // Check all that Dispatch (kBoth), DispatchSend and Combine check, without enqueuing anything:
  // for calls that enqueue something else ahead of them.
  virtual absl::Status CheckDispatch(const Rank& rank, const DispatchRequest& request,
                                     Phases phases) const = 0;
  virtual absl::Status CheckCombine(const Rank& rank, const CombineRequest& request) const = 0;
  // Checks that this object made the handle for this rank, and that no dispatch since overwrites
  // what that one has received.
  virtual absl::Status CheckReceivedIsValid(const Rank& rank,
                                            const DispatchHandle& handle) const = 0;

  // Load the kernel of a call that is fused with such a product, on every rank. Default:
  // kUnimplemented.
  virtual absl::Status PrepareDispatchGemm(Rank& rank, const DispatchProduct& product);
  virtual absl::Status PrepareGemmCombine(Rank& rank, const CombineProduct& product);

  // Default: kFailedPrecondition, the configuration does not ask for them.
  virtual absl::StatusOr<RankSet> MaskedRanks(Rank& rank);
  virtual absl::Status Mask(Rank& rank, RankSet ranks);
  virtual absl::Status Unmask(Rank& rank, RankSet still_masked);
  virtual absl::StatusOr<EpStatistics> Statistics(Rank& rank);
  virtual absl::Status ResetStatistics(Rank& rank);

  // Any thread. [E], without a placement of the caller's. Default: kFailedPrecondition.
  virtual absl::StatusOr<ExpertLoads> Loads() const;

  // Counts the rows of local experts, or nothing; nullptr: those are counted nowhere.
  virtual LoadCounting* load_counting() { return nullptr; }

  virtual Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const = 0;
  virtual Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const = 0;

  // Returns the trace tags of the kernels, in order, or nothing if the kernels cannot be traced.
  virtual absl::Span<const TraceTag> trace_tags() const { return {}; }
  // Returns the memory that a dispatch of `rows` rows will write on the rank.
  virtual std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const = 0;
  // Over several nodes: the calls that distribute tokens within this node; else nullptr.
  virtual const EpCalls* intranode() const { return nullptr; }

 protected:
  // Returns kUnimplemented: the strategy has no `call` that is fused with a product.
  absl::Status NoProduct(absl::string_view call) const;
};

// Makes the calls of an ExpertParallel. Unlike Create not collective: all nodes of the domain must
// have agreed on the arguments.
absl::StatusOr<std::unique_ptr<EpCalls>> MakeCalls(Domain& domain, const EpConfig& config,
                                                   const ExpertParallelOptions& options);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_EP_CALLS_H_
