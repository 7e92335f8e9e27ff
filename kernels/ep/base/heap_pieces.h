// Places the pieces of a layout one after the other.
#ifndef OCTET_KERNELS_EP_BASE_HEAP_PIECES_H_
#define OCTET_KERNELS_EP_BASE_HEAP_PIECES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "octet/memory_piece.h"
#include "octet/symmetric_heap.h"

namespace octet {

constexpr size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

class HeapPieces {
 public:
  // `list` gets each piece under its name; nullptr: none.
  explicit HeapPieces(std::vector<MemoryPiece>* list = nullptr) : list_(list) {}

  // Returns the offset of a new piece of `bytes` after all pieces placed so far.
  size_t Place(size_t bytes, absl::string_view name = {}) {
    const size_t offset = end_;
    end_ = AlignUp(end_ + bytes, SymmetricHeap::kAlignment);
    if (list_ != nullptr) list_->push_back({MemoryUse::kHeap, std::string(name), end_ - offset});
    return offset;
  }
  size_t end() const { return end_; }

 private:
  std::vector<MemoryPiece>* list_;
  size_t end_ = 0;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_HEAP_PIECES_H_
