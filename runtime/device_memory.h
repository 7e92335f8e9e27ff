// A piece of one GPU's memory with an owner.
#ifndef OCTET_RUNTIME_DEVICE_MEMORY_H_
#define OCTET_RUNTIME_DEVICE_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace octet {

// Move-only. Freed with its owner, from any thread, whatever device is current there; not while a
// kernel uses it, and not inside Node::Run (freeing can wait for a device).
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory();

  // `bytes` (at least 1 is taken) on the calling thread's current device, not initialised.
  // kResourceExhausted, with the bytes, where there is no such memory.
  static absl::StatusOr<DeviceMemory> Allocate(size_t bytes);

  // Gives the memory up without freeing it: for memory of a stuck node (Node::stuck).
  void Abandon() { data_ = nullptr; }

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

#endif  // OCTET_RUNTIME_DEVICE_MEMORY_H_
