// Host memory that GPUs copy to and from at full speed, with an owner.
#ifndef OCTET_RUNTIME_PINNED_MEMORY_H_
#define OCTET_RUNTIME_PINNED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace octet {

// Move-only. Freed with its owner; not inside Node::Run (freeing can wait for a device).
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory();

  // `bytes` (at least 1 is taken), not initialised, for all devices.
  static absl::StatusOr<PinnedMemory> Allocate(size_t bytes);

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_PINNED_MEMORY_H_
