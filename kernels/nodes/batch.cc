#include "kernels/nodes/batch.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/size.h"

namespace octet::hierarchical {

BatchRows LayOutBatch(const Chunks& chunks, int own, absl::Span<const int> sent,
                      absl::Span<const int> received) {
  BatchRows rows = {.own = own, .chunks = {}, .ends = {}};
  int end = own;
  for (int chunk = 0; chunk < chunks.count; ++chunk) {
    const auto of_chunk = [&](int all) {
      return std::clamp(all - chunk * chunks.rows, 0, chunks.rows);
    };
    std::vector<Piece>& pieces = rows.chunks.emplace_back();
    for (size_t node = 0; node < sent.size(); ++node) {
      pieces.push_back(
          {.sent = of_chunk(sent[node]), .received = of_chunk(received[node]), .first = end});
      end += pieces.back().received;
    }
    rows.ends.push_back(end);
  }
  return rows;
}

void AddParts(const Chunks& chunks, const BatchRows& rows, int chunk, const RailMemory& memory,
              std::vector<RailPart>& parts) {
  size_t slot = Size(chunk * chunks.rows);
  for (const Piece& piece : rows.chunks[Size(chunk)]) {
    char* const sent = memory.sent + slot * memory.bytes;
    char* const batch = memory.batch + Size(piece.first) * memory.bytes;
    const size_t sent_bytes = Size(piece.sent) * memory.bytes;
    const size_t batch_bytes = Size(piece.received) * memory.bytes;
    parts.push_back(memory.direction == Direction::kToBatch
                        ? RailPart{sent, sent_bytes, batch, batch_bytes}
                        : RailPart{batch, batch_bytes, sent, sent_bytes});
    slot += Size(chunks.max_tokens);
  }
}

}  // namespace octet::hierarchical
