// Buffers and their sizes, before there are any.
#ifndef OCTET_MEMORY_PIECE_H_
#define OCTET_MEMORY_PIECE_H_

#include <cstddef>
#include <string>

#include "absl/types/span.h"
#include "octet/enum_names.h"

namespace octet {

enum class MemoryUse {
  kWeights,
  kHeap,       // the symmetric heap, into which peers write
  kWorkspace,  // other memory of the rank's GPU
};
absl::Span<const EnumEntry<MemoryUse>> EnumTable(MemoryUse);  // names: octet/enum_names.h

struct MemoryPiece {
  MemoryUse use = MemoryUse::kWorkspace;
  std::string name = {};  // "received rows"
  size_t bytes = 0;       // on every rank
};

}  // namespace octet

#endif  // OCTET_MEMORY_PIECE_H_
