// Owned memory: the common part of DeviceMemory and PinnedMemory.
#ifndef OCTET_RUNTIME_MEMORY_OWNED_MEMORY_H_
#define OCTET_RUNTIME_MEMORY_OWNED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace octet {

// Move-only. May be destroyed on any thread with any current device, but not while a kernel uses
// the memory and not inside Node::Run (freeing can wait for a device). `Kind` has
//   static absl::StatusOr<void*> Allocate(size_t bytes);  // bytes > 0
//   static void Free(void* data);
template <typename Kind>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(OwnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~OwnedMemory() {
    if (data_ != nullptr) Kind::Free(data_);
  }

  // Allocates `bytes` (at least 1), uninitialised. Returns the error of Kind::Allocate.
  static absl::StatusOr<OwnedMemory> Allocate(size_t bytes) {
    absl::StatusOr<void*> data = Kind::Allocate(bytes > 0 ? bytes : 1);
    if (!data.ok()) return data.status();
    OwnedMemory memory;
    memory.data_ = *data;
    memory.bytes_ = bytes;
    return memory;
  }

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

#endif  // OCTET_RUNTIME_MEMORY_OWNED_MEMORY_H_
