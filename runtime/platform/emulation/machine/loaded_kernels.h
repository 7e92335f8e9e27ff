// The kernels that a device has loaded, as a GPU's driver loads them: when somebody asks about a
// kernel there (hipFuncGetAttributes, hipFuncSetAttribute), else at its first launch. On a GPU,
// such a launch may wait for kernels that wait for peers.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_LOADED_KERNELS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_LOADED_KERNELS_H_

#include <mutex>
#include <set>
#include <vector>

namespace octet::emulation {

// Of one device. Host threads only: a std::mutex, which ThreadSanitizer sees, orders no more than
// the device's own does at every launch.
class LoadedKernels {
 public:
  void Load(const void* kernel);
  // Loads `kernel` for a launch, and notes it unless it was loaded before.
  void Launch(const void* kernel);
  // The kernels that launches have loaded since the last call.
  std::vector<const void*> TakeLoadedByLaunches();

 private:
  std::mutex mutex_;
  std::set<const void*> loaded_;
  std::vector<const void*> by_launches_;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_LOADED_KERNELS_H_
