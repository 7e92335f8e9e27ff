#include "kernels/high_throughput/layout.h"

#include <algorithm>

#include "kernels/ep/base/heap_pieces.h"
#include "kernels/ep/make_layout.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"

namespace octet::high_throughput {
namespace {

// The smallest part of a row worth a wave of its own in combine, and the most parts of a row:
// measured on H200s.
constexpr int kSmallestPartVecs = 192;
constexpr int kMostRowParts = 2;

// Parts help at the end of a call, where waves wait for rows. If a call has so few blocks that they
// limit it, and so many tokens for each block, parts cost more than they save: without them,
// combine of 4096 tokens on two H200s with 24 blocks takes 673 µs instead of 746, with rows
// received once 355 instead of 432.
constexpr int kFewBlocks = 64;
constexpr int kManyTokens = 64;

}  // namespace

int BlocksAskedFor(const EpConfig& config) {
  return config.tuning.blocks > 0 ? config.tuning.blocks : config.max_blocks;
}

int ChooseRowParts(const EpConfig& config, int num_ranks) {
  const int blocks = BlocksAskedFor(config);
  const int tokens = config.max_tokens_per_rank * std::min(num_ranks, config.topk);
  if (blocks > 0 && blocks <= kFewBlocks && tokens / blocks >= kManyTokens) return 1;
  const int row_vecs = static_cast<int>(config.dtype_row_bytes() / kVecBytes);
  return std::clamp(row_vecs / kSmallestPartVecs, 1, kMostRowParts);
}

Layout MakeLayout(const EpConfig& config, int num_ranks) {
  Layout layout = {};
  SetShape(config, num_ranks, layout);
  layout.num_counts = config.num_experts + num_ranks;
  layout.row_vecs = static_cast<int>(config.dispatch_row_bytes() / kVecBytes);
  layout.scale_words = config.scale_words();
  layout.combine_vecs = static_cast<int>(config.dtype_row_bytes() / kVecBytes);
  layout.combine_parts = config.tuning.row_parts;
  layout.expert_alignment = config.high_throughput.expert_alignment;
  layout.arrivals = config.high_throughput.row_arrivals;
  layout.token_major = config.rows_once();
  layout.pull = config.combine_method == CombineMethod::kPull;
  // If rows have the same offsets in dispatch and combine, experts may work in place: a token's sum
  // then waits at an offset that held only one of the token's own rows.
  layout.pull_by_token =
      layout.per_rank && (layout.token_major || layout.row_vecs != layout.combine_vecs);

  const auto ranks = static_cast<size_t>(num_ranks);
  const auto tokens = static_cast<size_t>(config.max_tokens_per_rank);
  const auto capacity = static_cast<size_t>(layout.capacity());
  HeapPieces heap;
  PlaceCounts(heap, layout);
  layout.packets = heap.Place(ranks * tokens * static_cast<size_t>(layout.packet_bytes));
  layout.combine_flags =
      heap.Place(tokens * static_cast<size_t>(layout.flags_per_token()) * sizeof(uint64_t));
  const size_t arrivals = layout.arrivals ? static_cast<size_t>(layout.max_rows) : 0;
  layout.row_arrivals = heap.Place(arrivals * sizeof(uint64_t));
  layout.control_bytes = heap.end();
  layout.row_origins = heap.Place(arrivals * sizeof(RowOrigin));
  const size_t combine_row_bytes = static_cast<size_t>(layout.combine_vecs) * kVecBytes;
  const size_t received_bytes = capacity * static_cast<size_t>(layout.row_vecs) * kVecBytes;
  const size_t pulled_rows = !layout.pull           ? 0
                             : layout.pull_by_token ? ranks * tokens
                                                    : static_cast<size_t>(layout.max_rows);
  layout.combine_rows = heap.Place(
      layout.pull ? 0 : tokens * static_cast<size_t>(layout.combine_slots) * combine_row_bytes);
  layout.bytes = heap.end();
  HeapPieces cached;
  layout.rows = cached.Place(std::max(received_bytes, pulled_rows * combine_row_bytes));
  layout.scales =
      cached.Place(capacity * static_cast<size_t>(layout.scale_words) * sizeof(uint32_t));
  layout.cached_bytes = cached.end();
  return layout;
}

}  // namespace octet::high_throughput
