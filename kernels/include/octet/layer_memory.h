// The memory that a layer takes, before anything is allocated.
#ifndef OCTET_LAYER_MEMORY_H_
#define OCTET_LAYER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "octet/memory_piece.h"
#include "octet/moe_layer.h"
#include "octet/topology.h"

namespace octet {

struct LayerMemory {
  std::vector<MemoryPiece> pieces;  // in no order of size; those of no bytes are left out
  MoeLayerConfig config;            // with the choices that the sizes depend on made

  // Return the bytes of the pieces of one use, and of all that are no weights.
  size_t Bytes(MemoryUse use) const;
  size_t BytesBesideWeights() const;
};

// Returns what MoeLayer::Create takes on each of `num_ranks` ranks of one node whose GPUs are those
// of `topology`, which may be fewer: nothing is allocated, and no GPU is used. LayerPath::kAuto is
// taken for kLaunches, which needs more, and a measured fusion of Fusion::kAuto for one that fits.
// What is smaller than a page, and what the runtime itself takes, is not listed. Any thread.
// kInvalidArgument for what MoeLayer::Create refuses, and for a topology without GPUs.
absl::StatusOr<LayerMemory> MemoryOfLayer(const MoeLayerConfig& config, const Topology& topology,
                                          int num_ranks);

// Returns the rows that a rank receives if each expert is chosen equally often, of M tokens on
// every rank: M·K. MoeLayerConfig::capacity_rows is a multiple of it, 1.25 for instance.
int64_t EvenRows(const MoeLayerConfig& config);

}  // namespace octet

#endif  // OCTET_LAYER_MEMORY_H_
