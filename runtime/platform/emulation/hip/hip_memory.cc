// HIP: allocation, copies and fills.
#include <cstring>
#include <utility>

#include "hip/hip_internal.h"

namespace octet::emulation {
namespace {

bool IsOnDevice(const Memory& memory, const void* pointer) {
  const int arena = memory.ArenaOf(pointer);
  return arena != kNoArena && arena != kHostArena;
}

hipError_t CheckCopy(const void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  const Memory& memory = Machine::Get().memory;
  if (!memory.IsAccessible(to, bytes) || !memory.IsAccessible(from, bytes)) {
    return bytes == 0 ? hipSuccess : hipErrorInvalidValue;
  }
  if (kind == hipMemcpyDefault || bytes == 0) return hipSuccess;
  if (kind < hipMemcpyHostToHost || kind > hipMemcpyDefault) return hipErrorInvalidMemcpyDirection;
  const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
  const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
  // Pinned memory may be on either side of a copy.
  const auto fits = [&](const void* pointer, bool device) {
    return memory.ArenaOf(pointer) == kHostArena || IsOnDevice(memory, pointer) == device;
  };
  return fits(to, to_device) && fits(from, from_device) ? hipSuccess : hipErrorInvalidValue;
}

hipError_t EnqueueCopy(Stream* stream, void* to, const void* from, size_t bytes,
                       hipMemcpyKind kind) {
  if (stream == nullptr) return hipErrorInvalidHandle;
  const hipError_t error = CheckCopy(to, from, bytes, kind);
  if (error != hipSuccess || bytes == 0) return error;
  if (stream->device->sticky_error() != hipSuccess) return stream->device->sticky_error();
  Operation operation;
  operation.kind = Operation::Kind::kCopy;
  operation.to = to;
  operation.from = from;
  operation.bytes = bytes;
  stream->device->Enqueue(stream, std::move(operation));
  return hipSuccess;
}

hipError_t EnqueueFill(Stream* stream, void* to, int value, size_t bytes) {
  if (stream == nullptr) return hipErrorInvalidHandle;
  if (bytes == 0) return hipSuccess;
  const Memory& memory = stream->device->machine->memory;
  if (memory.ArenaOf(to) == kNoArena || !memory.IsAccessible(to, bytes)) {
    return hipErrorInvalidValue;
  }
  if (stream->device->sticky_error() != hipSuccess) return stream->device->sticky_error();
  Operation operation;
  operation.kind = Operation::Kind::kFill;
  operation.to = to;
  operation.value = value;
  operation.bytes = bytes;
  stream->device->Enqueue(stream, std::move(operation));
  return hipSuccess;
}

hipError_t Allocate(int arena, void** pointer, size_t bytes, unsigned flags) {
  if (pointer == nullptr) return hipErrorInvalidValue;
  *pointer = nullptr;
  if (bytes == 0) return hipSuccess;
  return Machine::Get().memory.Allocate(arena, bytes, flags, pointer);
}

}  // namespace
}  // namespace octet::emulation

using octet::emulation::Allocation;
using octet::emulation::CurrentDevice;
using octet::emulation::kHostArena;
using octet::emulation::kNoArena;
using octet::emulation::Machine;
using octet::emulation::ResolveStream;
using octet::emulation::Return;
using octet::emulation::Stream;

hipError_t hipMalloc(void** pointer, size_t bytes) {
  OCTET_DEVICE_CALL();
  return Return(
      octet::emulation::Allocate(CurrentDevice().id, pointer, bytes, hipDeviceMallocDefault));
}

hipError_t hipExtMallocWithFlags(void** pointer, size_t bytes, unsigned flags) {
  OCTET_DEVICE_CALL();
  if (flags != hipDeviceMallocDefault && flags != hipDeviceMallocFinegrained &&
      flags != hipDeviceMallocUncached) {
    return Return(hipErrorInvalidValue);
  }
  return Return(octet::emulation::Allocate(CurrentDevice().id, pointer, bytes, flags));
}

hipError_t hipFree(void* pointer) {
  if (pointer == nullptr) return hipSuccess;
  OCTET_DEVICE_CALL();
  Machine& machine = Machine::Get();
  const int arena = machine.memory.ArenaOf(pointer);
  if (arena == kNoArena || arena == kHostArena) return Return(hipErrorInvalidValue);
  machine.devices[static_cast<size_t>(arena)]->SynchronizeAll();
  return Return(machine.memory.Free(pointer));
}

hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned flags) {
  OCTET_DEVICE_CALL();
  return Return(octet::emulation::Allocate(kHostArena, pointer, bytes, flags));
}

hipError_t hipHostFree(void* pointer) {
  if (pointer == nullptr) return hipSuccess;
  OCTET_DEVICE_CALL();
  Machine& machine = Machine::Get();
  if (machine.memory.ArenaOf(pointer) != kHostArena) return Return(hipErrorInvalidValue);
  CurrentDevice().SynchronizeAll();
  return Return(machine.memory.Free(pointer));
}

hipError_t hipHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned flags) {
  OCTET_API_CALL();
  Allocation found;
  if (device_pointer == nullptr || flags != 0 ||
      !Machine::Get().memory.Find(host_pointer, &found) || found.arena != kHostArena) {
    return Return(hipErrorInvalidValue);
  }
  *device_pointer = host_pointer;
  return hipSuccess;
}

hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  OCTET_API_CALL();
  if (free_bytes == nullptr || total_bytes == nullptr) return Return(hipErrorInvalidValue);
  const auto& memory = Machine::Get().memory;
  *total_bytes = memory.capacity();
  *free_bytes = memory.capacity() - memory.used(CurrentDevice().id);
  return hipSuccess;
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  OCTET_API_CALL();
  if (attributes == nullptr || pointer == nullptr) return Return(hipErrorInvalidValue);
  *attributes = {};
  Allocation found;
  if (!Machine::Get().memory.Find(pointer, &found)) {
    attributes->type = hipMemoryTypeUnregistered;
    attributes->device = -2;
    return Machine::Get().memory.ArenaOf(pointer) == kNoArena ? hipSuccess
                                                              : Return(hipErrorInvalidValue);
  }
  void* address = const_cast<void*>(pointer);
  const bool host = found.arena == kHostArena;
  attributes->type = host ? hipMemoryTypeHost : hipMemoryTypeDevice;
  attributes->device = host ? CurrentDevice().id : found.arena;
  attributes->devicePointer = address;
  attributes->hostPointer = host ? address : nullptr;
  attributes->allocationFlags = found.flags;
  return hipSuccess;
}

hipError_t hipMemsetAsync(void* pointer, int value, size_t bytes, hipStream_t stream) {
  OCTET_API_CALL();
  return Return(octet::emulation::EnqueueFill(ResolveStream(stream), pointer, value, bytes));
}

hipError_t hipMemset(void* pointer, int value, size_t bytes) {
  OCTET_DEVICE_CALL();
  Stream* stream = ResolveStream(nullptr);
  const hipError_t error = octet::emulation::EnqueueFill(stream, pointer, value, bytes);
  return Return(error != hipSuccess ? error : stream->device->Synchronize(stream));
}

hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream) {
  OCTET_API_CALL();
  return Return(octet::emulation::EnqueueCopy(ResolveStream(stream), to, from, bytes, kind));
}

hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  OCTET_DEVICE_CALL();
  Stream* stream = ResolveStream(nullptr);
  const hipError_t error = octet::emulation::EnqueueCopy(stream, to, from, bytes, kind);
  return Return(error != hipSuccess ? error : stream->device->Synchronize(stream));
}

// NOLINTNEXTLINE(readability-function-size): HIP's parameters
hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                              size_t bytes, hipStream_t stream) {
  const auto& memory = Machine::Get().memory;
  if (memory.ArenaOf(to) != to_device || memory.ArenaOf(from) != from_device) {
    return Return(hipErrorInvalidValue);
  }
  return hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, stream);
}

hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  const auto& memory = Machine::Get().memory;
  if (memory.ArenaOf(to) != to_device || memory.ArenaOf(from) != from_device) {
    return Return(hipErrorInvalidValue);
  }
  return hipMemcpy(to, from, bytes, hipMemcpyDeviceToDevice);
}
