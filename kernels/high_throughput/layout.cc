#include "kernels/high_throughput/layout.h"

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/ep/base/heap_pieces.h"
#include "kernels/ep/make_layout.h"
#include "kernels/high_throughput/kernels.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"
#include "octet/memory_piece.h"
#include "octet/row_source.h"

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

Layout MakeLayout(const EpConfig& config, int num_ranks, std::vector<MemoryPiece>* list) {
  Layout layout = {};
  SetShape(config, num_ranks, layout);
  layout.num_counts = layout.num_experts + num_ranks;
  layout.row_vecs = static_cast<int>(config.dispatch_row_bytes() / kVecBytes);
  layout.scale_words = config.scale_words();
  layout.combine_vecs = static_cast<int>(config.dtype_row_bytes() / kVecBytes);
  layout.combine_parts = config.tuning.row_parts;
  layout.expert_alignment = config.high_throughput.expert_alignment;
  layout.arrivals = config.high_throughput.row_arrivals;
  layout.bounded = config.capacity_rows > 0;
  layout.token_major = config.rows_once();
  layout.pull = config.combine_method == CombineMethod::kPull;
  // If rows have the same offsets in dispatch and combine, experts may work in place: a token's sum
  // then waits at an offset that held only one of the token's own rows.
  layout.pull_by_token =
      layout.per_rank && (layout.token_major || layout.row_vecs != layout.combine_vecs);

  const auto ranks = static_cast<size_t>(num_ranks);
  const auto tokens = static_cast<size_t>(config.max_tokens_per_rank);
  const auto capacity = static_cast<size_t>(layout.capacity());
  HeapPieces heap(list);
  PlaceCounts(heap, layout);
  layout.packets = heap.Place(ranks * tokens * static_cast<size_t>(layout.packet_bytes), "packets");
  layout.combine_flags =
      heap.Place(tokens * static_cast<size_t>(layout.flags_per_token()) * sizeof(uint64_t),
                 "flags of returned rows");
  const size_t arrivals = layout.arrivals ? static_cast<size_t>(layout.max_rows) : 0;
  layout.row_arrivals = heap.Place(arrivals * sizeof(uint64_t), "row arrivals");
  layout.control_bytes = heap.end();
  layout.row_origins = heap.Place(arrivals * sizeof(RowOrigin), "row origins");
  const size_t combine_row_bytes = static_cast<size_t>(layout.combine_vecs) * kVecBytes;
  const size_t received_bytes = capacity * static_cast<size_t>(layout.row_vecs) * kVecBytes;
  const auto max_rows = static_cast<size_t>(layout.max_rows);
  // A token has a row at least, so that no more tokens than rows are received.
  const size_t most_tokens = layout.token_major ? capacity : std::min(ranks * tokens, max_rows);
  const size_t pulled_rows = !layout.pull ? 0 : layout.pull_by_token ? most_tokens : max_rows;
  layout.combine_rows = heap.Place(
      layout.pull ? 0 : tokens * static_cast<size_t>(layout.combine_slots) * combine_row_bytes,
      "returned rows");
  layout.bytes = heap.end();
  HeapPieces cached(list);
  layout.rows =
      cached.Place(std::max(received_bytes, pulled_rows * combine_row_bytes), "received rows");
  layout.scales =
      cached.Place(capacity * static_cast<size_t>(layout.scale_words) * sizeof(uint32_t),
                   "scales of received rows");
  layout.cached_bytes = cached.end();
  return layout;
}

KeptPieces PlaceKept(const Layout& layout) {
  const auto ranks = static_cast<size_t>(layout.num_ranks);
  const auto tokens = static_cast<size_t>(layout.max_tokens);
  const auto num_local = static_cast<size_t>(layout.num_local_experts);
  HeapPieces pieces;
  KeptPieces kept = {};
  kept.packets = pieces.Place(ranks * tokens * static_cast<size_t>(layout.packet_bytes));
  kept.packet_counts = pieces.Place(ranks * sizeof(int32_t));
  kept.source_offsets = pieces.Place((ranks + 1) * sizeof(int32_t));
  kept.first_slots = pieces.Place(ranks * sizeof(int32_t));
  kept.expert_counts = pieces.Place(num_local * sizeof(int32_t));
  kept.expert_offsets = pieces.Place((num_local + 1) * sizeof(int32_t));
  kept.routes = pieces.Place(tokens * static_cast<size_t>(layout.topk) * sizeof(Route));
  kept.bytes = pieces.end();
  return kept;
}

void ListOwnMemory(const EpConfig& config, const Layout& layout, int blocks,
                   std::vector<MemoryPiece>& list) {
  const auto rows = static_cast<size_t>(layout.max_rows);
  const size_t tokens =
      static_cast<size_t>(layout.num_ranks) * static_cast<size_t>(layout.max_tokens);
  const size_t choices = static_cast<size_t>(layout.max_tokens) * static_cast<size_t>(layout.topk);
  const auto add = [&](absl::string_view name, size_t bytes) {
    list.push_back({MemoryUse::kWorkspace, std::string(name), bytes});
  };
  const bool deduplicated = config.output == Output::kDeduplicated;
  const bool index = config.high_throughput.duplicates == Duplicates::kIndex;
  const int most_blocks = blocks * (layout.arrivals ? kMostFusedBlocksPerUnit : 1);
  add("dispatch state", StateBytes(layout, most_blocks));
  add("kept layouts",
      static_cast<size_t>(config.high_throughput.kept_layouts) * PlaceKept(layout).bytes);
  add("sources of received rows", (deduplicated ? tokens : rows) * sizeof(RowSource));
  add("weights of received rows", deduplicated ? 0 : rows * sizeof(float));
  add("choices of received rows",
      deduplicated ? tokens * static_cast<size_t>(layout.topk) * 2 * sizeof(int32_t) : 0);
  add("indices of received rows", index ? rows * sizeof(int32_t) : 0);
  add("counts of blocks",
      static_cast<size_t>(layout.num_counts) * static_cast<size_t>(most_blocks) * sizeof(int32_t));
  add("order of choices", layout.arrivals ? choices * sizeof(SendEntry) : 0);
}

}  // namespace octet::high_throughput
