// What a dispatch delivers, and the handle by which its combine finds it.
//
// Notation in the comments: R ranks, E experts, L = E/R local experts, M most tokens of a rank, K
// choices of a token, H elements of a row.
#ifndef OCTET_RECEIVED_H_
#define OCTET_RECEIVED_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "octet/row_source.h"

namespace octet {

// Ranks of a node, a bit each: bit r is rank r.
using RankSet = uint32_t;

// Whom a call goes without on the rank that makes it (ExpertParallel, "Masks"). Written by the
// calls in stream order: the host can read it after Rank::Synchronize or Node::Run.
struct LeftOut {
  RankSet dispatch;  // from whom nothing was received, whatever they may have sent
  RankSet combine;   // whose part is in no sum of the last combine with this handle
};

// What combine must know of a dispatch. x may be overwritten once Dispatch is done in stream
// order; topk_idx and topk_weights must stay as they are until Combine is. Only the ExpertParallel
// and the rank that made a handle take it; others refuse it with kInvalidArgument.
struct DispatchHandle {
  uint64_t call = 0;
  int num_tokens = 0;
  const int32_t* topk_idx = nullptr;
  const float* topk_weights = nullptr;
  uint64_t layout = 0;  // high_throughput: which of the layouts that were made, from 1
  // Its ExpertParallel, with a number that tells it from others at the same address; and the rank.
  const void* owner = nullptr;
  uint32_t owner_id = 0;
  int rank = -1;
};

// What arrived on this rank, valid in stream order. All memory belongs to the ExpertParallel and is
// overwritten by the rank's next Dispatch, with low_latency by the second next. "Rows in expert
// order" are those of all choices of this rank's experts: expert by expert, within an expert by
// (source rank, token). With kExpertMajor and kRankMajor rows lie apart (Output), and whatever is
// said of rows in expert order holds for all rows there is memory for; between those that `ranges`
// names they have no meaning.
struct Received {
  const void* x = nullptr;                  // the rows, packed. kPackedExperts: in expert order;
                                            // with Duplicates::kIndex, and in kDeduplicated, one
                                            // for each token, by (source rank, token)
  const int32_t* expert_counts = nullptr;   // [L] rows in expert order of each local expert
  const int32_t* expert_offsets = nullptr;  // [L + 1] first of each; the last is the total, padding
                                            // included. Null with kRankMajor
  const RowSource* sources = nullptr;       // of rows in expert order, {-1, -1, -1, -1}: padding;
                                            // kDeduplicated: of each row of x, its first choice
  size_t row_bytes = 0;                     // stride of x
  int max_rows = 0;                         // rows in expert order at most, padding included:
                                            // EpConfig::max_rows
  DispatchHandle handle;

  // ---- high_throughput only; scales low_latency as well.

  const void* scales = nullptr;              // kFp8, kQuantizedFp8: for each row of x,
                                             // [scale_words]
  const int32_t* source_offsets = nullptr;   // [R + 1] first token of each source rank; the last is
                                             // the number of tokens that were received
  const float* row_weights = nullptr;        // kPackedExperts: for each row in expert order the
                                             // weight that came with it; 0: padding
  const int32_t* row_index = nullptr;        // Duplicates::kIndex: for each row in expert order the
                                             // row of x; -1: padding
  const int32_t* recv_topk_idx = nullptr;    // kDeduplicated: for each row [K] local experts, -1:
                                             // another rank's, or dropped
  const float* recv_topk_weights = nullptr;  // beside them, 0 where the expert is -1
  // With config.host_totals; else -1 and empty. Host memory, valid until the next Dispatch.
  int num_rows = -1;                             // expert_offsets[L]
  int num_tokens = -1;                           // source_offsets[R]
  absl::Span<const int32_t> host_expert_counts;  // expert_counts

  // ---- low_latency only.

  const RowRange* ranges = nullptr;       // [L][R] the rows of each (expert, source rank)
  const int32_t* split_counts = nullptr;  // kRankMajor: [R][L] the numbers of the same rows
  // FailurePolicy::kMask: whom the call goes without. In host memory that kernels can read as well,
  // but overwritten like the rest.
  const LeftOut* left_out = nullptr;
};

}  // namespace octet

#endif  // OCTET_RECEIVED_H_
