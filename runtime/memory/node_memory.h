// The memory of an object made on a node.
#ifndef OCTET_RUNTIME_MEMORY_NODE_MEMORY_H_
#define OCTET_RUNTIME_MEMORY_NODE_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/memory/device_memory.h"
#include "runtime/memory/pinned_memory.h"

namespace octet {

// Frees all its memory on destruction, or leaves it unfreed if the node is not ready for that
// (Node::ReadyToFree). The node may be destroyed first. Any thread may allocate.
class NodeMemory {
 public:
  explicit NodeMemory(const Node& node) : node_(node.Share()) {}
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  // Allocates `count` objects of T, uninitialised, on the calling thread's current device.
  // kResourceExhausted, with the bytes, if there is not enough memory.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Device(size_t count) {
    return Keep<DeviceMemoryKind, T>(count);
  }
  // Likewise in pinned host memory, for all devices.
  template <typename T>
  absl::StatusOr<absl::Span<T>> Pinned(size_t count) {
    return Keep<PinnedMemoryKind, T>(count);
  }

 private:
  struct Piece {
    void* data;
    void (*free)(void*);
  };

  template <typename Kind, typename T>
  absl::StatusOr<absl::Span<T>> Keep(size_t count) {
    OCTET_ASSIGN_OR_RETURN(void* data, Kind::Allocate(std::max<size_t>(count * sizeof(T), 1)));
    MutexLock lock(&mutex_);
    pieces_.push_back({data, Kind::Free});
    return absl::MakeSpan(static_cast<T*>(data), count);
  }

  const std::shared_ptr<Node> node_;
  Mutex mutex_;
  std::vector<Piece> pieces_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octet

#endif  // OCTET_RUNTIME_MEMORY_NODE_MEMORY_H_
