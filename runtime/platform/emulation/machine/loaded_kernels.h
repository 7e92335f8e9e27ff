// The kernels that a device has loaded, following a GPU's driver: a kernel is loaded by the first
// query about it on the device (hipFuncGetAttributes, hipFuncSetAttribute), else by its first
// launch. On a GPU, such a launch may wait for kernels that wait for peers.
//
// Each has a limit of the dynamic shared memory of its launches, as on NVIDIA GPUs: 48 KiB until
// hipFuncSetAttribute sets another one, which then holds for all launches in the process.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_LOADED_KERNELS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_LOADED_KERNELS_H_

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace octet::emulation {

// The kernels of one device. For host threads only. ThreadSanitizer sees this std::mutex, but it
// orders no more than the device's own mutex does at every launch.
class LoadedKernels {
 public:
  void Load(const void* kernel);
  // Loads `kernel` for a launch; records it if it was not loaded before.
  void Launch(const void* kernel);
  void LimitShared(const void* kernel, size_t bytes);
  size_t SharedLimit(const void* kernel);
  // Returns the kernels that launches have loaded since the last call.
  std::vector<const void*> TakeLoadedByLaunches();

 private:
  std::mutex mutex_;
  std::set<const void*> loaded_;
  std::vector<const void*> by_launches_;
  std::map<const void*, size_t> shared_limits_;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_LOADED_KERNELS_H_
