// Memory at the same offset on every GPU of the node.
#ifndef OCTET_SYMMETRIC_HEAP_H_
#define OCTET_SYMMETRIC_HEAP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"
#include "octet/peers.h"

namespace octet {

// The kinds of memory in a heap. On most platforms they are the same; on AMD GPUs a peer's stores
// into kUncached memory bypass the caches, and the owner's reads of kCached memory are cached
// (docs/memory_model.md).
//   kUncached  flags, counts, and data that is read once
//   kCached    rows that kernels of the owner read after an acquire, perhaps more than once
enum class HeapMemory { kUncached, kCached };

// Bytes of each kind.
struct HeapSize {
  size_t uncached = 0;
  size_t cached = 0;

  size_t total() const { return uncached + cached; }
};

// Memory that every rank may write on every other rank: receive buffers, flags, counts. Zeroed at
// creation. Belongs to the node it was made on, which may be destroyed first.
class SymmetricHeap {
 public:
  // The default alignment of allocations, in bytes.
  static constexpr size_t kAlignment = 256;

  // Allocates `size` bytes on every rank; the total must not be 0. kResourceExhausted, with the
  // bytes, if a GPU does not have enough memory. Must not be called during Run.
  static absl::StatusOr<std::unique_ptr<SymmetricHeap>> Create(Node& node, const HeapSize& size);
  // Allocates kUncached memory only.
  static absl::StatusOr<std::unique_ptr<SymmetricHeap>> Create(Node& node, size_t bytes) {
    return Create(node, HeapSize{.uncached = bytes});
  }
  ~SymmetricHeap();
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  // Allocates `count` objects of T at the same offset of all heaps. They live as long as the heap.
  // Not thread-safe.
  //   kResourceExhausted  says how many bytes are needed and how many are left
  //   kInvalidArgument    `alignment` is not a power of two, or exceeds that of the heaps
  template <typename T>
  absl::StatusOr<SymmetricPtr<T>> Allocate(size_t count, size_t alignment = kAlignment) {
    const size_t bytes = count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
    absl::StatusOr<size_t> offset = AllocateBytes(bytes, alignment);
    if (!offset.ok()) return offset.status();
    return SymmetricPtr<T>{*offset};
  }
  // Returns an offset in the memory of kind `kind`.
  absl::StatusOr<size_t> AllocateBytes(size_t bytes, size_t alignment,
                                       HeapMemory kind = HeapMemory::kUncached);

  size_t bytes(HeapMemory kind = HeapMemory::kUncached) const { return part(kind).bytes; }
  size_t bytes_used() const { return part(HeapMemory::kUncached).used; }
  // For kernel parameters of `rank`: where the memory of kind `kind` begins on each rank; null if
  // the heap has none.
  device::PeerBases peers(int rank, HeapMemory kind = HeapMemory::kUncached) const;

 private:
  static constexpr size_t kKinds = 2;
  struct Part {
    size_t bytes = 0;
    size_t used = 0;
    std::vector<char*> bases;
  };

  explicit SymmetricHeap(const Node& node) : node_(node.Share()) {}
  absl::Status Allocate(HeapMemory kind, size_t bytes);
  const Part& part(HeapMemory kind) const { return parts_[static_cast<size_t>(kind)]; }
  Part& part(HeapMemory kind) { return parts_[static_cast<size_t>(kind)]; }

  const std::shared_ptr<Node> node_;
  std::array<Part, kKinds> parts_;
};

}  // namespace octet

#endif  // OCTET_SYMMETRIC_HEAP_H_
