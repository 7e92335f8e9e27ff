#include "kernels/direct/layout.h"

#include <algorithm>

#include "kernels/ep/base/heap_pieces.h"
#include "kernels/ep/make_layout.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"
#include "octet/memory_piece.h"
#include "octet/row_source.h"

namespace octet::direct {
namespace {

// The smallest part worth a wave of its own, and the number of parts that a call should have.
// Measured on H200s over the challenge's shapes; with more parts, the flags cost more time than is
// saved.
constexpr int kSmallestPartVecs = 64;
constexpr int kWantedParts = 1024;
constexpr int kMostRowParts = 4;

}  // namespace

int ChooseRowParts(const EpConfig& config) {
  const int row_vecs = static_cast<int>(config.dtype_row_bytes() / kVecBytes);
  const int rows = config.max_tokens_per_rank * config.topk;
  const int wanted = std::max(1, kWantedParts / rows);
  return std::clamp(std::min(wanted, row_vecs / kSmallestPartVecs), 1, kMostRowParts);
}

Layout MakeLayout(const EpConfig& config, int num_ranks, std::vector<MemoryPiece>* list) {
  Layout layout = {};
  SetShape(config, num_ranks, layout);
  layout.slots_per_source =
      config.max_tokens_per_rank * std::min(config.topk, layout.num_local_experts);
  layout.num_counts = layout.num_local_experts;
  layout.row_vecs = static_cast<int>(config.dtype_row_bytes() / kVecBytes);
  layout.row_parts = config.tuning.row_parts;

  const auto ranks = static_cast<size_t>(num_ranks);
  const auto slots = static_cast<size_t>(layout.slots_per_source);
  const auto parts = static_cast<size_t>(layout.row_parts);
  const auto flat_tokens =
      static_cast<size_t>(config.max_tokens_per_rank) * static_cast<size_t>(config.topk);
  const size_t row_bytes = static_cast<size_t>(layout.row_vecs) * kVecBytes;
  HeapPieces heap(list);
  PlaceCounts(heap, layout);
  layout.packets = heap.Place(ranks * slots * parts * sizeof(Packet), "packets");
  layout.source_flags = heap.Place(ranks * sizeof(Flag), "source flags");
  layout.combine_flags = heap.Place(flat_tokens * parts * sizeof(Flag), "flags of returned rows");
  layout.combine_source_flags = heap.Place(ranks * sizeof(Flag), "combine source flags");
  layout.control_bytes = heap.end();
  layout.rows = heap.Place(ranks * slots * row_bytes, "rows in transit");
  layout.combine_rows = heap.Place(flat_tokens * row_bytes, "returned rows");
  layout.bytes = heap.end();
  return layout;
}

void ListOwnMemory(const EpConfig& config, const Layout& layout, int /*blocks*/,
                   std::vector<MemoryPiece>& list) {
  const auto rows = static_cast<size_t>(layout.max_rows);
  list.push_back({MemoryUse::kWorkspace, "received rows", rows * config.received_row_bytes()});
  list.push_back({MemoryUse::kWorkspace, "sources of received rows", rows * sizeof(RowSource)});
}

}  // namespace octet::direct
