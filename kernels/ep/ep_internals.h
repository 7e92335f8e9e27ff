// Functions of ExpertParallel that tests and tools use but users do not.
#ifndef OCTET_KERNELS_EP_EP_INTERNALS_H_
#define OCTET_KERNELS_EP_EP_INTERNALS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/base/row_chunks.h"
#include "kernels/ep/combine_product.h"
#include "kernels/ep/dispatch_product.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/trace.h"

namespace octet {

struct EpInternals {
  // Fills the memory that a dispatch of `num_rows` rows will write with 0xFF bytes (NaNs), in
  // stream order.
  static absl::Status Poison(ExpertParallel& ep, Rank& rank, int num_rows) {
    return ep.Poison(rank, num_rows);
  }
  // Loads the kernel of a dispatch that is fused with such a product. kUnimplemented if the
  // strategy has none.
  static absl::Status PrepareDispatchGemm(ExpertParallel& ep, Rank& rank,
                                          const DispatchProduct& product) {
    return ep.PrepareDispatchGemm(rank, product);
  }
  // Lets all later dispatches of the rank begin before all rows of x have come, and later combines
  // tell which rows of y are complete. The memory of `chunks` must outlive them. Waits of these
  // dispatches within the node get twice the node's timeout.
  static void SetChunks(ExpertParallel& ep, const Rank& rank, const RowChunks& chunks) {
    ep.SetChunks(rank, chunks);
  }
  // A Dispatch that also computes a product of the rows that it receives.
  static absl::StatusOr<Received> DispatchGemm(ExpertParallel& ep, Rank& rank,
                                               const DispatchArgs& args,
                                               const DispatchProduct& product) {
    return ep.DispatchGemm(rank, args, product);
  }
  // The same for a combine and the product before it.
  static absl::Status PrepareGemmCombine(ExpertParallel& ep, Rank& rank,
                                         const CombineProduct& product) {
    return ep.PrepareGemmCombine(rank, product);
  }
  // A Combine that first computes args.expert_out.
  static absl::Status GemmCombine(ExpertParallel& ep, Rank& rank, const DispatchHandle& handle,
                                  const CombineArgs& args, const CombineProduct& product) {
    return ep.GemmCombine(rank, handle, args, product);
  }
  // Returns the trace tags of the kernels, in order, or nothing if the kernels cannot be traced.
  static absl::Span<const TraceTag> TraceTags(const ExpertParallel& ep) { return ep.trace_tags(); }
  // Returns what distributes tokens within this node, if `ep` is for several nodes; else nullptr.
  static const ExpertParallel* Intranode(const ExpertParallel& ep) { return ep.intranode(); }
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_EP_INTERNALS_H_
