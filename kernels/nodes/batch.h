// The layout of a rank's batch: its own tokens come first, then those of each chunk, of each other
// node in ascending order. Host only.
//
//   [ own | chunk 0: of node 0, of node 2, ... | chunk 1: of node 0, of node 2, ... | ... ]
#ifndef OCTET_KERNELS_NODES_BATCH_H_
#define OCTET_KERNELS_NODES_BATCH_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "runtime/net/rails/rail.h"

namespace octet::hierarchical {

// How the tokens of a rank are divided for another node.
struct Chunks {
  int max_tokens = 0;  // M
  int rows = 0;        // of each chunk, at most
  int count = 1;
};

// The rows of one chunk that cross between the rank and one node.
struct Piece {
  int sent = 0;
  int received = 0;
  int first = 0;  // of those that are received, in the batch
};

struct BatchRows {
  int own = 0;
  std::vector<std::vector<Piece>> chunks;  // [chunk][node]
  std::vector<int> ends;                   // [chunk] rows of the batch up to the chunk's end
};

// `own`: tokens of the rank itself. `sent`, `received`: tokens for and from each node, 0 for the
// rank's own.
BatchRows LayOutBatch(const Chunks& chunks, int own, absl::Span<const int> sent,
                      absl::Span<const int> received);

// A dispatch brings rows to the batch, a combine returns them on the way on which they came.
enum class Direction { kToBatch, kFromBatch };

// Memory that rows, or what belongs to them, cross between, and which way.
struct RailMemory {
  char* sent;    // [P][M], by node
  char* batch;   // [P * M]
  size_t bytes;  // of a row
  Direction direction = Direction::kToBatch;
};

// Appends the parts of an exchange of one chunk, one for each node.
void AddParts(const Chunks& chunks, const BatchRows& rows, int chunk, const RailMemory& memory,
              std::vector<RailPart>& parts);

}  // namespace octet::hierarchical

#endif  // OCTET_KERNELS_NODES_BATCH_H_
