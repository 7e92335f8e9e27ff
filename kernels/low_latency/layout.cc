#include "kernels/low_latency/layout.h"

#include "kernels/ep/base/heap_pieces.h"
#include "kernels/ep/make_layout.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"

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

Layout MakeLayout(const EpConfig& config, int num_ranks) {
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
  HeapPieces heap;
  PlaceCounts(heap, layout);
  if (layout.own_slots) layout.combine_begun = heap.Place(ranks * sizeof(Flag));
  layout.packets = heap.Place(kHalves * ranks * tokens * static_cast<size_t>(layout.packet_bytes));
  layout.combine_flags = heap.Place(kHalves * returned_rows * sizeof(Flag));
  layout.control_bytes = heap.end();
  layout.rows =
      heap.Place(kHalves * ranks * tokens * static_cast<size_t>(layout.slot_vecs) * kVecBytes);
  layout.combine_rows =
      heap.Place(kHalves * returned_rows * static_cast<size_t>(layout.dtype_vecs) * kVecBytes);
  layout.bytes = heap.end();
  return layout;
}

}  // namespace octet::low_latency
