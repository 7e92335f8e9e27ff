// The result of a dispatch, and the handle that identifies the dispatch to its combine.
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

// Ranks excluded from a call, as seen by the calling rank (ExpertParallel, "Masks"). The calls
// write it in stream order: the host can read it after Rank::Synchronize or Node::Run.
struct LeftOut {
  RankSet dispatch;  // nothing was received from these ranks, whatever they may have sent
  RankSet combine;   // no sum of the last combine with this handle contains their outputs
};

// Identifies a dispatch to its receive and its combine. The caller may overwrite x once Dispatch is
// done in stream order, and must leave topk_idx and topk_weights unchanged until Combine is. Only
// the ExpertParallel and the rank that made a handle accept it; others return kInvalidArgument.
struct DispatchHandle {
  uint64_t call = 0;
  int num_tokens = 0;
  const int32_t* topk_idx = nullptr;
  const float* topk_weights = nullptr;
  uint64_t layout = 0;  // high_throughput: the number of its layout, counted from 1
  // The ExpertParallel that made it, a number that tells that from others at the same address, and
  // the rank.
  const void* owner = nullptr;
  uint32_t owner_id = 0;
  int rank = -1;
};

// What only high_throughput delivers.
struct HighThroughputReceived {
  const int32_t* source_offsets = nullptr;   // [R + 1] first token of each source rank; the last is
                                             // the number of tokens that were received
  const float* row_weights = nullptr;        // kPackedExperts: the weight of each row in expert
                                             // order; 0 for padding
  const int32_t* row_index = nullptr;        // Duplicates::kIndex: the row of x that each row in
                                             // expert order is; -1 for padding
  const int32_t* recv_topk_idx = nullptr;    // kDeduplicated: [K] local experts of each row; -1 is
                                             // another rank's choice, or a dropped one
  const float* recv_topk_weights = nullptr;  // [K] of each row; 0 where the expert is -1
  // Set with HighThroughputOptions::host_totals; otherwise -1 and empty. Host memory, valid until
  // the next Dispatch.
  int num_rows = -1;                             // expert_offsets[L]
  int num_tokens = -1;                           // source_offsets[R]
  absl::Span<const int32_t> host_expert_counts;  // expert_counts
};

// What only low_latency delivers.
struct LowLatencyReceived {
  const RowRange* ranges = nullptr;       // [L][R] the rows of each (expert, source rank)
  const int32_t* split_counts = nullptr;  // kRankMajor: [R][L] the numbers of the same rows
  // FailurePolicy::kMask: the ranks excluded from the call. Host memory that kernels can read, too;
  // overwritten like the rest.
  const LeftOut* left_out = nullptr;
};

// The rows that arrived on this rank, valid in stream order. All memory belongs to the
// ExpertParallel and is overwritten by the rank's next Dispatch, with low_latency by the one after
// that. "Rows in expert order" are the rows of all choices of this rank's experts: expert by
// expert, within an expert by (source rank, token). With kExpertMajor and kRankMajor, rows lie
// apart (Output), and arrays "in expert order" have an element for every row that there is memory
// for; only the elements that `ranges` names have a meaning.
struct Received {
  const void* x = nullptr;                  // the rows, packed. kPackedExperts: in expert order.
                                            // With Duplicates::kIndex, and with kDeduplicated: one
                                            // for each token, by (source rank, token)
  const void* scales = nullptr;             // kFp8, kQuantizedFp8: [scale_words] for each row of x
  const int32_t* expert_counts = nullptr;   // [L] number of rows of each local expert
  const int32_t* expert_offsets = nullptr;  // [L + 1] first row of each; the last is the total,
                                            // padding included. Null with kRankMajor
  const RowSource* sources = nullptr;  // of each row in expert order; {-1, -1, -1, -1} is padding.
                                       // kDeduplicated: the first choice of each row of x
  size_t row_bytes = 0;                // stride of x
  int max_rows = 0;  // the most rows in expert order, padding included: EpConfig::max_rows
  DispatchHandle handle;

  // Empty unless that strategy received the rows.
  HighThroughputReceived high_throughput = {};
  LowLatencyReceived low_latency = {};
};

}  // namespace octet

#endif  // OCTET_RECEIVED_H_
