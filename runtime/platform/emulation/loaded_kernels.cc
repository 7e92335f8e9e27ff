#include "loaded_kernels.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulation.h"
#include "machine.h"
#include "symbols.h"

namespace octet::emulation {

void LoadedKernels::Load(const void* kernel, int device) {
  std::lock_guard lock(mutex_);
  loaded_.emplace(kernel, device);
}

void LoadedKernels::Launch(const void* kernel, int device) {
  std::lock_guard lock(mutex_);
  if (loaded_.emplace(kernel, device).second) by_launches_.emplace_back(kernel, device);
}

std::vector<std::pair<std::string, int>> LoadedKernels::TakeLoadedByLaunches() {
  std::vector<std::pair<const void*, int>> taken;
  {
    std::lock_guard lock(mutex_);
    std::swap(taken, by_launches_);
  }
  std::vector<std::pair<std::string, int>> named;
  for (const auto& [kernel, device] : taken) named.emplace_back(FunctionName(kernel), device);
  return named;
}

std::vector<std::pair<std::string, int>> TakeKernelsLoadedByLaunches() {
  return Machine::Get().loaded_kernels.TakeLoadedByLaunches();
}

}  // namespace octet::emulation
