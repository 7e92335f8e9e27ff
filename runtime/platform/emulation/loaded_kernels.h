// Which kernels have been loaded on which device, as a GPU's driver would load them: by whoever
// asks about a kernel there (hipFuncGetAttributes, hipFuncSetAttribute), else by the first launch.
// On a GPU, such a launch may wait for kernels that wait for peers.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_LOADED_KERNELS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_LOADED_KERNELS_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spin_lock.h"

namespace octet::emulation {

class LoadedKernels {
 public:
  void Load(const void* kernel, int device);
  // The same by a launch, noted if it is what loads the kernel.
  void Launch(const void* kernel, int device);
  // Kernels, by name, that launches have loaded since the last call, with the device.
  std::vector<std::pair<std::string, int>> TakeLoadedByLaunches();

 private:
  SpinLock mutex_;
  std::set<std::pair<const void*, int>> loaded_;
  std::vector<std::pair<const void*, int>> by_launches_;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_LOADED_KERNELS_H_
