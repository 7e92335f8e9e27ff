// Errors that tests inject into HIP calls.
#include <atomic>
#include <mutex>
#include <string>

#include "emulation.h"
#include "hip/hip_internal.h"

namespace octet::emulation {
namespace {

std::atomic<bool> armed{false};  // makes calls without an injection cheap
std::mutex mutex;
Injection wanted;
uint64_t calls = 0;
std::string hit;

}  // namespace

void InjectError(const Injection& injection) {
  std::lock_guard lock(mutex);
  wanted = injection;
  calls = 0;
  hit.clear();
  armed.store(true, std::memory_order_release);
}

std::string EndInjection() {
  std::lock_guard lock(mutex);
  armed.store(false, std::memory_order_release);
  return hit;
}

hipError_t EnterCall(const char* name) {
  if (Machine::Get().workers.empty()) return hipErrorOutOfMemory;
  if (!armed.load(std::memory_order_acquire)) return hipSuccess;
  std::lock_guard lock(mutex);
  if (!armed.load(std::memory_order_acquire)) return hipSuccess;
  if (wanted.device >= 0 && CurrentDevice().id != wanted.device) return hipSuccess;
  if (!wanted.name.empty() && wanted.name != name) return hipSuccess;
  if (++calls != wanted.call) return hipSuccess;
  armed.store(false, std::memory_order_release);
  hit = name;
  return wanted.error;
}

}  // namespace octet::emulation
