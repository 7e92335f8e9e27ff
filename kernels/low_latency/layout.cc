#include "kernels/low_latency/layout.h"

#include "kernels/ep/base/heap_pieces.h"
#include "kernels/ep/make_layout.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"
#include "octet/memory_piece.h"
#include "octet/row_source.h"

namespace octet::low_latency {
namespace {

RowOffsets MakeRowOffsets(const EpConfig& config, const Layout& layout) {
  switch (config.output) {
    case Output::kExpertMajor:
      return {.by_source = false,
              .group_size = layout.num_ranks,
              .group_rows = layout.num_ranks * layout.max_tokens};
    case Output::kRankMajor:
      return {.by_source = true,
              .group_size = layout.num_local_experts,
              .group_rows = layout.max_tokens * layout.max_choices};
    case Output::kPackedExperts:
    case Output::kDeduplicated:
      break;
  }
  return {.by_source = false, .group_size = layout.num_ranks, .group_rows = 0};
}

}  // namespace

Layout MakeLayout(const EpConfig& config, int num_ranks, std::vector<MemoryPiece>* list) {
  Layout layout = {};
  SetShape(config, num_ranks, layout);
  layout.num_counts = layout.num_local_experts + 1;
  layout.dtype_vecs = static_cast<int>(config.dtype_row_bytes() / kVecBytes);
  layout.row_vecs = static_cast<int>(config.received_row_bytes() / kVecBytes);
  layout.scale_words = config.scale_words();
  layout.slot_vecs =
      layout.row_vecs +
      static_cast<int>(
          AlignUp(static_cast<size_t>(layout.scale_words) * sizeof(uint32_t), kVecBytes) /
          kVecBytes);
  layout.scale_groups = (config.hidden + config.scale_group - 1) / config.scale_group;
  layout.group_lanes = config.scale_group / 8;
  layout.scale_format = config.scale_format;
  layout.row_offsets = MakeRowOffsets(config, layout);

  constexpr size_t kHalves = kCallsInFlight;
  const auto ranks = static_cast<size_t>(num_ranks);
  const auto tokens = static_cast<size_t>(config.max_tokens_per_rank);
  const size_t returned_rows = tokens * static_cast<size_t>(layout.combine_slots);
  HeapPieces heap(list);
  PlaceCounts(heap, layout);
  if (layout.own_slots) {
    layout.combine_begun = heap.Place(ranks * sizeof(Flag), "combine begun flags");
  }
  layout.packets =
      heap.Place(kHalves * ranks * tokens * static_cast<size_t>(layout.packet_bytes), "packets");
  layout.combine_flags =
      heap.Place(kHalves * returned_rows * sizeof(Flag), "flags of returned rows");
  layout.control_bytes = heap.end();
  layout.rows =
      heap.Place(kHalves * ranks * tokens * static_cast<size_t>(layout.slot_vecs) * kVecBytes,
                 "rows in transit");
  layout.combine_rows =
      heap.Place(kHalves * returned_rows * static_cast<size_t>(layout.dtype_vecs) * kVecBytes,
                 "returned rows");
  layout.bytes = heap.end();
  return layout;
}

void ListOwnMemory(const EpConfig& config, const Layout& layout, int /*blocks*/,
                   std::vector<MemoryPiece>& list) {
  const size_t rows = size_t{kCallsInFlight} * static_cast<size_t>(layout.max_rows);
  const size_t packets = size_t{kCallsInFlight} * static_cast<size_t>(layout.num_ranks) *
                         static_cast<size_t>(layout.max_tokens);
  for (const auto& [name, bytes] :
       {std::pair("received rows", rows * config.received_row_bytes()),
        std::pair("scales of received rows",
                  rows * static_cast<size_t>(layout.scale_words) * sizeof(uint32_t)),
        std::pair("sources of received rows", rows * sizeof(RowSource)),
        std::pair("kept packets", packets * static_cast<size_t>(layout.packet_bytes))}) {
    list.push_back({MemoryUse::kWorkspace, name, bytes});
  }
}

}  // namespace octet::low_latency
