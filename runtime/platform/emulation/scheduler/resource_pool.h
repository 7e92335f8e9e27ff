// The resources that blocks and lanes need while they run, kept for reuse: stacks, shared memory
// and ThreadSanitizer's contexts.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_RESOURCE_POOL_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_RESOURCE_POOL_H_

#include <cstddef>
#include <vector>

#include "sanitizers/sanitizer.h"

namespace octet::emulation {

inline constexpr size_t kSharedBytesPerBlock = 64 << 10;

// AddressSanitizer needs gaps between objects in shared memory.
inline constexpr size_t kSharedRedZone = kAsan ? 128 : 0;
inline constexpr size_t kSharedMappedBytes = (kAsan ? 2 : 1) * kSharedBytesPerBlock;

// Only one thread at a time may use it.
class ResourcePool {
 public:
  explicit ResourcePool(size_t stack_bytes) : stack_bytes_(stack_bytes) {}
  ~ResourcePool();
  ResourcePool(const ResourcePool&) = delete;
  ResourcePool& operator=(const ResourcePool&) = delete;

  // Returns the lowest address of a stack, nullptr if there is no memory. The tops of neighbouring
  // stacks lie in different sets of the cache.
  void* TakeStack();
  // Returns false if the user of the stack ran over its end. Frames that have not been left lie in
  // the upper `bytes_in_use`: for AddressSanitizer, which has poisoned parts of them.
  bool ReturnStack(void* stack_low, size_t bytes_in_use);
  size_t stack_bytes() const { return stack_bytes_; }

  // Returns kSharedMappedBytes of memory, nullptr if there is none.
  char* TakeShared();
  void ReturnShared(char* shared);

  // Returns whether ThreadSanitizer, which supports a limited number of contexts, has room for
  // `count`.
  bool HasTsanContexts(size_t count) const;
  void* TakeTsanContext();
  void ReturnTsanContext(void* context);
  // All that have been returned.
  void DestroyTsanContexts();

 private:
  struct Chunk {
    char* memory;
    size_t bytes;
  };
  struct TsanContext {
    void* handle;
  };

  void AddStacks();

  const size_t stack_bytes_;
  std::vector<Chunk> mapped_;
  std::vector<Chunk> stacks_;
  std::vector<Chunk> shared_;
  std::vector<TsanContext> tsan_contexts_;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_RESOURCE_POOL_H_
