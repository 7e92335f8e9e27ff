// Memory at the same offset on every GPU of the node.
#ifndef OCTET_RUNTIME_SYMMETRIC_HEAP_H_
#define OCTET_RUNTIME_SYMMETRIC_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/peers.h"
#include "runtime/node.h"

namespace octet {

// What all ranks may write into one another's memory: receive buffers, flags, counts. Allocated
// uncached where the platform has that, so that a peer's stores are never hidden by a stale line.
// Zeroed at creation. Belongs to the node it was made on and must not outlive it.
class SymmetricHeap {
 public:
  // The alignment of every allocation unless more is asked for: bytes.
  static constexpr size_t kAlignment = 256;

  // `bytes` on every rank. kResourceExhausted (with the bytes) where a GPU has no such memory.
  // Not during Run.
  static absl::StatusOr<std::unique_ptr<SymmetricHeap>> Create(Node& node, size_t bytes);
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
  absl::StatusOr<size_t> AllocateBytes(size_t bytes, size_t alignment);

  size_t bytes() const { return bytes_; }
  size_t bytes_used() const { return used_; }
  // For kernel parameters of `rank`.
  device::PeerBases peers(int rank) const;

 private:
  SymmetricHeap(Node& node, size_t bytes);

  Node& node_;
  size_t bytes_;
  size_t used_ = 0;
  std::vector<char*> bases_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_SYMMETRIC_HEAP_H_
