// Fills in the parts that the strategies' layouts have in common. Host only.
#ifndef OCTET_KERNELS_EP_MAKE_LAYOUT_H_
#define OCTET_KERNELS_EP_MAKE_LAYOUT_H_

#include "kernels/ep/base/heap_pieces.h"
#include "kernels/ep/device/call_layout.h"
#include "octet/ep_config.h"

namespace octet {

// Sets everything except num_counts and the offsets. `config` must be valid for `num_ranks`.
void SetShape(const EpConfig& config, int num_ranks, CallLayout& layout);
void SetShape(const EpConfig& config, int num_ranks, PacketLayout& layout);

// Places the counts and the credits.
void PlaceCounts(HeapPieces& heap, CallLayout& layout);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_MAKE_LAYOUT_H_
