#include "machine/loaded_kernels.h"

#include <string>
#include <utility>

#include "emulation.h"
#include "machine/machine.h"
#include "machine/symbols.h"

namespace octet::emulation {

void LoadedKernels::Load(const void* kernel) {
  std::lock_guard lock(mutex_);
  loaded_.insert(kernel);
}

void LoadedKernels::Launch(const void* kernel) {
  std::lock_guard lock(mutex_);
  if (loaded_.insert(kernel).second) by_launches_.push_back(kernel);
}

void LoadedKernels::LimitShared(const void* kernel, size_t bytes) {
  std::lock_guard lock(mutex_);
  shared_limits_[kernel] = bytes;
}

size_t LoadedKernels::SharedLimit(const void* kernel) {
  constexpr size_t kUnlessSet = 48 << 10;
  std::lock_guard lock(mutex_);
  const auto it = shared_limits_.find(kernel);
  return it != shared_limits_.end() ? it->second : kUnlessSet;
}

std::vector<const void*> LoadedKernels::TakeLoadedByLaunches() {
  std::lock_guard lock(mutex_);
  return std::exchange(by_launches_, {});
}

std::vector<std::pair<std::string, int>> TakeKernelsLoadedByLaunches() {
  std::vector<std::pair<std::string, int>> named;
  for (const auto& device : Machine::Get().devices) {
    for (const void* kernel : device->loaded_kernels.TakeLoadedByLaunches()) {
      named.emplace_back(FunctionName(kernel), device->id);
    }
  }
  return named;
}

}  // namespace octet::emulation
