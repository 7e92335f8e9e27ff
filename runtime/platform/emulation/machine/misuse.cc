// Detects what the bodies of ranks must not do.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "emulation.h"
#include "hip/hip_internal.h"
#include "machine/symbols.h"

namespace octet::emulation {
namespace {

// The body that the calling thread runs.
struct Body {
  std::function<void(const std::string&)> report;  // empty: none, or it has been called
  int device = 0;                                  // of the kernel
  const void* kernel = nullptr;  // the last kernel that may wait for other ranks; null: none
};
thread_local Body body;

}  // namespace

void BeginBody(std::function<void(const std::string&)> report) {
  body = {};
  body.report = std::move(report);
}

void EndBody() { body = {}; }

void KernelsWait(hipStream_t stream) {
  if (body.report == nullptr) return;
  Device* device = stream->device;
  std::lock_guard lock(device->mutex);
  if (stream->capture != nullptr || stream->last_kernel == nullptr) return;
  body.device = device->id;
  body.kernel = stream->last_kernel;
}

void KernelsHaveEnded() { body.kernel = nullptr; }

void EnterWaitingCall(const char* name) {
  if (body.kernel == nullptr || body.report == nullptr) return;
  const auto report = std::exchange(body.report, nullptr);
  report(std::string(name) + " is called while kernel " + FunctionName(body.kernel) +
         " may still run on device " + std::to_string(body.device) +
         " and wait for other ranks. On a GPU such a call can wait for the device, keep other ranks"
         " from launching, and so deadlock: call it before, outside of Run, or after"
         " Rank::Synchronize");
}

std::string PlaceOutside(int device, const void* pointer) {
  const Memory& memory = Machine::Get().memory;
  if (pointer == nullptr) return "";
  const int arena = memory.ArenaOf(pointer);
  if (arena == kNoArena) {
    char text[64];
    std::snprintf(text, sizeof(text), "%p, host memory that is not pinned", pointer);
    return text;
  }
  Allocation found;
  return arena == device && memory.Find(pointer, &found) ? "" : memory.Describe(pointer);
}

std::optional<size_t> BytesFrom(const void* pointer) {
  Allocation found;
  if (!Machine::Get().memory.Find(pointer, &found)) return std::nullopt;
  return found.begin + found.bytes - reinterpret_cast<uintptr_t>(pointer);
}

}  // namespace octet::emulation
