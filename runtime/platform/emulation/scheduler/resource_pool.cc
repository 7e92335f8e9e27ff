#include "scheduler/resource_pool.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

namespace octet::emulation {
namespace {

constexpr size_t kColourBytes = 320;  // shifts each stack by five more cache lines
constexpr size_t kStacksPerChunk = 1024;
constexpr uint64_t kCanary = 0xdeadbeefcafef00dULL;
constexpr size_t kCanaryOffset = 64;

// ThreadSanitizer distinguishes 256 contexts; the process needs some for its threads.
constexpr size_t kMaxTsanContexts = 200;
std::atomic<size_t> tsan_contexts_created{0};

char* Map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory != MAP_FAILED ? static_cast<char*>(memory) : nullptr;
}

// What pools have mapped that are gone, for those to come: tests start machine after machine, and
// touching pages for the first time is most of what a short kernel costs.
class SpareMemory {
 public:
  static SpareMemory& Get() {
    static auto* spare = new SpareMemory;  // outlives pools that end with the process
    return *spare;
  }

  char* Take(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (auto node = chunks_.extract(bytes); !node.empty()) return node.mapped();
    }
    return Map(bytes);
  }

  void Return(char* memory, size_t bytes) {
    if (kTsan) {  // it forgets their accesses, which nothing orders before those of others
      munmap(memory, bytes);
      return;
    }
    AsanUnpoison(memory, bytes);
    const std::lock_guard lock(mutex_);
    chunks_.emplace(bytes, memory);
  }

 private:
  std::mutex mutex_;
  std::multimap<size_t, char*> chunks_;  // by their bytes
};

}  // namespace

ResourcePool::~ResourcePool() {
  DestroyTsanContexts();
  for (const Chunk& chunk : mapped_) SpareMemory::Get().Return(chunk.memory, chunk.bytes);
}

void ResourcePool::AddStacks() {
  const size_t stride = stack_bytes_ + kColourBytes;
  const size_t bytes = stride * kStacksPerChunk;
  char* memory = SpareMemory::Get().Take(bytes);
  if (memory == nullptr) return;
  madvise(memory, bytes, MADV_NOHUGEPAGE);  // a lane uses only the top of its stack
  mapped_.push_back({memory, bytes});
  for (size_t i = kStacksPerChunk; i-- > 0;) stacks_.push_back({memory + i * stride, stack_bytes_});
}

void* ResourcePool::TakeStack() {
  if (stacks_.empty()) AddStacks();
  if (stacks_.empty()) return nullptr;
  char* low = stacks_.back().memory;
  stacks_.pop_back();
  std::memcpy(low + kCanaryOffset, &kCanary, sizeof(kCanary));
  return low;
}

bool ResourcePool::ReturnStack(void* stack_low, size_t bytes_in_use) {
  char* low = static_cast<char*>(stack_low);
  AsanUnpoison(low + stack_bytes_ - bytes_in_use, bytes_in_use);
  stacks_.push_back({low, stack_bytes_});
  return std::memcmp(low + kCanaryOffset, &kCanary, sizeof(kCanary)) == 0;
}

char* ResourcePool::TakeShared() {
  if (shared_.empty()) {
    char* memory = SpareMemory::Get().Take(kSharedMappedBytes);
    if (memory != nullptr) mapped_.push_back({memory, kSharedMappedBytes});
    return memory;
  }
  char* memory = shared_.back().memory;
  shared_.pop_back();
  return memory;
}

void ResourcePool::ReturnShared(char* shared) {
  AsanUnpoison(shared, kSharedMappedBytes);
  shared_.push_back({shared, kSharedMappedBytes});
}

bool ResourcePool::HasTsanContexts(size_t count) const {
  const size_t reusable = tsan_contexts_.size();
  return count <= reusable ||
         tsan_contexts_created.load(std::memory_order_relaxed) + count - reusable <=
             kMaxTsanContexts;
}

void* ResourcePool::TakeTsanContext() {
  if (tsan_contexts_.empty()) {
    tsan_contexts_created.fetch_add(1, std::memory_order_relaxed);
    return TsanCreateContext();
  }
  void* context = tsan_contexts_.back().handle;
  tsan_contexts_.pop_back();
  return context;
}

void ResourcePool::ReturnTsanContext(void* context) { tsan_contexts_.push_back({context}); }

void ResourcePool::DestroyTsanContexts() {
  for (const TsanContext& context : tsan_contexts_) TsanDestroyContext(context.handle);
  tsan_contexts_created.fetch_sub(tsan_contexts_.size(), std::memory_order_relaxed);
  tsan_contexts_.clear();
}

}  // namespace octet::emulation
