// HIP: kernel attributes, occupancy and launches.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <utility>

#include "hip/hip_internal.h"

namespace octet::emulation {
namespace {

// Returns the static shared memory of a kernel, as known from its launches so far. It is reported,
// but does not count for occupancy, which must not change between the first launch and the second.
size_t StaticShared(Machine& machine, const void* kernel) {
  std::lock_guard lock(machine.function_mutex);
  const auto it = machine.static_shared.find(kernel);
  return it != machine.static_shared.end() ? it->second : 0;
}

uint64_t Volume(const dim3& d) { return uint64_t{d.x} * d.y * d.z; }

}  // namespace

hipError_t CheckLaunch(const void* kernel, const LaunchConfig& config) {
  if (const hipError_t injected =
          EnterCall(config.cooperative ? "hipLaunchCooperativeKernel" : "hipLaunchKernel");
      injected != hipSuccess) {
    return Return(injected);
  }
  if (kernel == nullptr) return Return(hipErrorInvalidDeviceFunction);
  Stream* stream = ResolveStream(config.stream);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  Machine& machine = *stream->device->machine;
  stream->device->loaded_kernels.Launch(kernel);
  const uint64_t threads = Volume(config.block);
  const uint64_t blocks = Volume(config.grid);
  if (threads == 0 || threads > kMaxThreadsPerBlock || blocks == 0 || blocks > UINT32_MAX) {
    return Return(hipErrorInvalidConfiguration);
  }
  const int per_unit =
      BlocksPerUnit(machine.config, static_cast<int>(threads), config.shared_bytes);
  if (per_unit == 0) return Return(hipErrorInvalidValue);
  if (config.shared_bytes > 0 &&
      config.shared_bytes > stream->device->loaded_kernels.SharedLimit(kernel)) {
    return Return(config.cooperative ? hipErrorCooperativeLaunchTooLarge : hipErrorInvalidValue);
  }
  if (config.cooperative && blocks > static_cast<uint64_t>(per_unit) *
                                         static_cast<uint64_t>(machine.config.compute_units)) {
    return Return(hipErrorCooperativeLaunchTooLarge);
  }
  return Return(stream->device->sticky_error());
}

hipError_t EnqueueKernel(const void* kernel, std::unique_ptr<KernelCall> call,
                         const LaunchConfig& config) {
  Stream* stream = ResolveStream(config.stream);
  if (stream == nullptr) return Return(hipErrorInvalidHandle);
  Machine& machine = *stream->device->machine;
  const int threads = static_cast<int>(Volume(config.block));
  auto launch = std::make_shared<GridLaunch>();
  launch->kernel = kernel;
  launch->call = std::move(call);
  launch->grid_dim = config.grid;
  launch->block_dim = config.block;
  launch->shared_bytes = config.shared_bytes;
  launch->cooperative = config.cooperative;
  launch->num_blocks = static_cast<uint32_t>(Volume(config.grid));
  launch->num_lanes = Volume(config.grid) * static_cast<uint64_t>(threads);
  launch->max_resident = static_cast<uint32_t>(
      std::max(1, BlocksPerUnit(machine.config, threads, config.shared_bytes)) *
      machine.config.compute_units);
  Operation operation;
  operation.kind = Operation::Kind::kKernel;
  operation.launch = std::move(launch);
  stream->device->Enqueue(stream, std::move(operation));
  return hipSuccess;
}

}  // namespace octet::emulation

using octet::emulation::Machine;
using octet::emulation::Return;

hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* function) {
  OCTET_API_CALL();
  if (attributes == nullptr) return Return(hipErrorInvalidValue);
  if (function == nullptr) return Return(hipErrorInvalidDeviceFunction);
  octet::emulation::LoadedKernels& kernels = octet::emulation::CurrentDevice().loaded_kernels;
  kernels.Load(function);
  *attributes = {};
  attributes->sharedSizeBytes = octet::emulation::StaticShared(Machine::Get(), function);
  attributes->maxThreadsPerBlock = octet::emulation::kMaxThreadsPerBlock;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(kernels.SharedLimit(function));
  return hipSuccess;
}

hipError_t hipFuncSetAttribute(const void* function, hipFuncAttribute attribute, int value) {
  OCTET_API_CALL();
  if (function == nullptr) return Return(hipErrorInvalidDeviceFunction);
  if (attribute != hipFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > Machine::Get().config.shared_bytes) {
    return Return(hipErrorInvalidValue);
  }
  octet::emulation::LoadedKernels& kernels = octet::emulation::CurrentDevice().loaded_kernels;
  kernels.Load(function);
  kernels.LimitShared(function, static_cast<size_t>(value));
  return hipSuccess;
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                        int threads, size_t shared_bytes) {
  OCTET_API_CALL();
  if (blocks == nullptr) return Return(hipErrorInvalidValue);
  if (function == nullptr) return Return(hipErrorInvalidDeviceFunction);
  octet::emulation::LoadedKernels& kernels = octet::emulation::CurrentDevice().loaded_kernels;
  *blocks = shared_bytes > kernels.SharedLimit(function)
                ? 0
                : octet::emulation::BlocksPerUnit(Machine::Get().config, threads, shared_bytes);
  return hipSuccess;
}
