// Shared memory: the dynamic kind, and the static `__shared__` objects, whose accesses
// -femulated-tls turns into calls of __emutls_get_address.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "machine/report.h"
#include "memory/memory_order.h"
#include "memory/poison.h"
#include "scheduler/lane_operations.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

constexpr size_t kAlignment = 128;

// The compiler's description of a variable.
struct Control {
  size_t bytes;
  size_t alignment;
  void* object;
  void* initial;
};

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void* TakeShared(Block* block, size_t bytes) {
  char* memory = block->shared + block->shared_used;
  block->shared_used += RoundUp(bytes) + kSharedRedZone;
  block->shared_bytes += bytes;
  AsanUnpoison(memory, bytes);
  OrderOverwrite(block->grid->device->machine, memory, bytes);
  auto* halves = reinterpret_cast<uint16_t*>(memory);
  uint16_t* end = std::fill_n(halves, bytes / sizeof(kPoison), kPoison);
  std::memcpy(end, &kPoison, bytes % sizeof(kPoison));
  return memory;
}

void* StaticShared(Lane* lane, Control* control) {
  Block* block = lane->wave->block;
  for (const auto& [key, memory] : block->statics) {
    if (key == control) return memory;
  }
  TsanIgnoreBegin();
  if (block->shared_bytes + control->bytes > kSharedBytesPerBlock ||
      block->shared_used + RoundUp(control->bytes) > kSharedMappedBytes) {
    std::string report = "static shared memory of " + std::to_string(control->bytes);
    report += " bytes on top of " + std::to_string(block->shared_bytes);
    report += ": a block has " + std::to_string(kSharedBytesPerBlock);
    Worker::Current()->FailFromLane(lane, hipErrorLaunchOutOfResources, std::move(report));
  }
  void* memory = TakeShared(block, control->bytes);
  block->statics.emplace_back(control, memory);
  {
    Machine* machine = block->grid->device->machine;
    std::lock_guard lock(machine->function_mutex);
    size_t& known = machine->static_shared[block->grid->kernel];
    known = std::max(known, block->shared_bytes - block->grid->shared_bytes);
  }
  TsanIgnoreEnd();
  return memory;
}

// For host code in .hip files that has a thread_local, or reads a `__shared__` by mistake.
void* HostThreadLocal(Control* control) {
  thread_local std::unordered_map<Control*, std::unique_ptr<char[]>> objects;
  std::unique_ptr<char[]>& object = objects[control];
  if (object == nullptr) {
    object = std::make_unique<char[]>(control->bytes + control->alignment);
    if (control->initial != nullptr) std::memcpy(object.get(), control->initial, control->bytes);
  }
  return object.get();
}

}  // namespace

void InitSharedMemory(Block* block, size_t dynamic_bytes) {
  AsanPoison(block->shared, kSharedMappedBytes);
  if (dynamic_bytes > 0) TakeShared(block, dynamic_bytes);
}

void* DynamicShared() { return ThisLane()->wave->block->shared; }

}  // namespace octet::emulation

extern "C" void* __emutls_get_address(void* control_pointer) {
  using namespace octet::emulation;  // NOLINT: the function cannot live there
  auto* control = static_cast<Control*>(control_pointer);
  Lane* lane = ThisLane();
  return lane != nullptr ? StaticShared(lane, control) : HostThreadLocal(control);
}
