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

// The kinds of memory of a heap. On most platforms they are the same; on AMD GPUs a peer's stores
// into kUncached memory bypass the caches, and the owner's reads of kCached memory are cached
// (docs/memory_model.md).
//   kUncached  flags, counts, and whatever is read once
//   kCached    rows that kernels of the owner read after an acquire, perhaps more than once
enum class HeapMemory { kUncached, kCached };

// Bytes of each kind.
struct HeapSize {
  size_t uncached = 0;
  size_t cached = 0;

  size_t total() const { return uncached + cached; }
};

// What all ranks may write into one another's memory: receive buffers, flags, counts. Zeroed at
// creation. Belongs to the node it was made on, which may be destroyed first.
class SymmetricHeap {
 public:
  // The alignment of every allocation unless more is asked for: bytes.
  static constexpr size_t kAlignment = 256;

  // So many bytes on every rank, not 0 in all. kResourceExhausted (with the bytes) where a GPU has
  // no such memory. Not during Run.
  static absl::StatusOr<std::unique_ptr<SymmetricHeap>> Create(Node& node, const HeapSize& size);
  // All of it kUncached.
  static absl::StatusOr<std::unique_ptr<SymmetricHeap>> Create(Node& node, size_t bytes) {
    return Create(node, HeapSize{.uncached = bytes});
  }
  ~SymmetricHeap();
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  // `count` objects of T at one offset of all heaps; never given back before the heap itself. One
  // thread at a time.
  //   kResourceExhausted  says how many bytes are needed and how many are left
  //   kInvalidArgument    alignment not a power of two, or more than the heaps themselves have
  template <typename T>
  absl::StatusOr<SymmetricPtr<T>> Allocate(size_t count, size_t alignment = kAlignment) {
    const size_t bytes = count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
    absl::StatusOr<size_t> offset = AllocateBytes(bytes, alignment);
    if (!offset.ok()) return offset.status();
    return SymmetricPtr<T>{*offset};
  }
  // An offset in the memory of that kind.
  absl::StatusOr<size_t> AllocateBytes(size_t bytes, size_t alignment,
                                       HeapMemory kind = HeapMemory::kUncached);

  size_t bytes(HeapMemory kind = HeapMemory::kUncached) const { return part(kind).bytes; }
  size_t bytes_used() const { return part(HeapMemory::kUncached).used; }
  // For kernel parameters of `rank`: where the memory of that kind begins on each rank, null if
  // there is none.
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
