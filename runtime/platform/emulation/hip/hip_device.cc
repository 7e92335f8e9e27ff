// HIP: errors and devices.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "emulation.h"
#include "hip/hip_internal.h"
#include "machine/report.h"

namespace octet::emulation {
namespace {

constinit thread_local hipError_t last_error = hipSuccess;
constinit thread_local int current_device = 0;

constexpr int kHipVersion = 70'200'000;
constexpr int kClockKhz = 1'000'000;

bool IsDevice(int device) {
  return device >= 0 && device < static_cast<int>(Machine::Get().devices.size());
}

struct ErrorText {
  hipError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {hipSuccess, "hipSuccess", "no error"},
    {hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration",
     "invalid configuration argument"},
    {hipErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {hipErrorInsufficientDriver, "hipErrorInsufficientDriver",
     "driver version is insufficient for runtime version"},
    {hipErrorInvalidDeviceFunction, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {hipErrorNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {hipErrorPeerAccessUnsupported, "hipErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {hipErrorIllegalState, "hipErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {hipErrorIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {hipErrorLaunchOutOfResources, "hipErrorLaunchOutOfResources",
     "out of resources at kernel launch"},
    {hipErrorLaunchTimeOut, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {hipErrorPeerAccessAlreadyEnabled, "hipErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {hipErrorPeerAccessNotEnabled, "hipErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {hipErrorCooperativeLaunchTooLarge, "hipErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {hipErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {hipErrorStreamCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {hipErrorStreamCaptureMerge, "hipErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {hipErrorStreamCaptureUnmatched, "hipErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {hipErrorStreamCaptureUnjoined, "hipErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {hipErrorStreamCaptureIsolation, "hipErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {hipErrorCapturedEvent, "hipErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {hipErrorUnknown, "hipErrorUnknown", "unknown error"},
};

const ErrorText& TextOf(hipError_t error) {
  const auto* found = std::ranges::find(kErrors, error, &ErrorText::error);
  return found != std::end(kErrors) ? *found : *std::prev(std::end(kErrors));
}

}  // namespace

hipError_t Return(hipError_t error) {
  if (error != hipSuccess && error != hipErrorNotReady) last_error = error;
  return error;
}

Device& CurrentDevice() {
  Machine& machine = Machine::Get();
  const auto index = static_cast<size_t>(current_device);
  return *machine.devices[index < machine.devices.size() ? index : 0];
}

std::string LastReport() { return Machine::Get().report(); }
void ClearErrors() { Machine::Get().ClearErrors(); }
std::string WhatHolds(int device) {
  const Machine& machine = Machine::Get();
  const auto index = static_cast<size_t>(device);
  return index < machine.devices.size() ? DescribeHold(*machine.devices[index]) : "";
}

Config CurrentConfig() { return Machine::Get().config; }
void Reconfigure(const Config& config) { Machine::Replace(config); }

void BeginHostWait(std::function<bool()> over) {
  if (const Machine* machine = Machine::IfStarted()) machine->HostWaits(std::move(over));
}
void EndHostWait() {
  if (const Machine* machine = Machine::IfStarted()) machine->HostGoesOn();
}

}  // namespace octet::emulation

using octet::emulation::CurrentDevice;
using octet::emulation::Device;
using octet::emulation::IsDevice;
using octet::emulation::Machine;
using octet::emulation::Return;

hipError_t hipGetLastError() {
  const hipError_t error = octet::emulation::last_error;
  octet::emulation::last_error = hipSuccess;
  return error;
}
hipError_t hipPeekAtLastError() { return octet::emulation::last_error; }
const char* hipGetErrorName(hipError_t error) { return octet::emulation::TextOf(error).name; }
// For the error that a kernel has left on the current device, lines below the first contain all
// known details; for a bad value, the misread environment variable, if any.
const char* hipGetErrorString(hipError_t error) {
  const char* plain = octet::emulation::TextOf(error).text;
  static thread_local std::string text;
  const std::string& misread = Machine::Get().config.misread;
  if (error == hipErrorInvalidValue && !misread.empty()) {
    text = std::string(plain) + ": " + misread;
    return text.c_str();
  }
  if (error == hipSuccess || error != CurrentDevice().sticky_error()) return plain;
  text = std::string(plain) + "\n" + Machine::Get().report();
  while (text.ends_with('\n')) text.pop_back();
  return text.c_str();
}

hipError_t hipRuntimeGetVersion(int* version) {
  OCTET_API_CALL();
  if (version == nullptr) return Return(hipErrorInvalidValue);
  *version = octet::emulation::kHipVersion;
  return hipSuccess;
}
hipError_t hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }

hipError_t hipGetDeviceCount(int* count) {
  OCTET_API_CALL();
  if (count == nullptr || !Machine::Get().config.misread.empty()) {
    return Return(hipErrorInvalidValue);
  }
  *count = static_cast<int>(Machine::Get().devices.size());
  return hipSuccess;
}

hipError_t hipSetDevice(int device) {
  OCTET_API_CALL();
  if (!IsDevice(device)) return Return(hipErrorInvalidDevice);
  octet::emulation::current_device = device;
  return hipSuccess;
}

hipError_t hipGetDevice(int* device) {
  OCTET_API_CALL();
  if (device == nullptr) return Return(hipErrorInvalidValue);
  *device = CurrentDevice().id;
  return hipSuccess;
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  OCTET_API_CALL();
  if (properties == nullptr) return Return(hipErrorInvalidValue);
  if (!IsDevice(device)) return Return(hipErrorInvalidDevice);
  const auto& config = Machine::Get().config;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Octet emulated GPU");
  std::snprintf(properties->gcnArchName, sizeof(properties->gcnArchName), "emulation");
  properties->totalGlobalMem = config.memory_bytes;
  properties->sharedMemPerBlock = config.shared_bytes;
  properties->warpSize = config.wave_size;
  properties->maxThreadsPerBlock = octet::emulation::kMaxThreadsPerBlock;
  properties->maxThreadsPerMultiProcessor = config.threads_per_unit;
  properties->multiProcessorCount = config.compute_units;
  properties->clockRate = octet::emulation::kClockKhz;
  properties->pciBusID = device + 1;
  properties->cooperativeLaunch = 1;
  properties->concurrentKernels = 1;
  return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  OCTET_API_CALL();
  if (value == nullptr) return Return(hipErrorInvalidValue);
  if (!IsDevice(device)) return Return(hipErrorInvalidDevice);
  const auto& config = Machine::Get().config;
  switch (attribute) {
    case hipDeviceAttributeClockRate:
    case hipDeviceAttributeWallClockRate:
      *value = octet::emulation::kClockKhz;
      return hipSuccess;
    case hipDeviceAttributeConcurrentKernels:
    case hipDeviceAttributeCooperativeLaunch:
      *value = 1;
      return hipSuccess;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
      *value = static_cast<int>(config.shared_bytes);
      return hipSuccess;
    case hipDeviceAttributeMaxThreadsPerBlock:
      *value = octet::emulation::kMaxThreadsPerBlock;
      return hipSuccess;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor:
      *value = config.threads_per_unit;
      return hipSuccess;
    case hipDeviceAttributeMemoryBusWidth:
    case hipDeviceAttributeMemoryClockRate:
      *value = 0;
      return hipSuccess;
    case hipDeviceAttributeMultiprocessorCount:
      *value = config.compute_units;
      return hipSuccess;
    case hipDeviceAttributeWarpSize:
      *value = config.wave_size;
      return hipSuccess;
  }
  return Return(hipErrorInvalidValue);
}

hipError_t hipDeviceGetPCIBusId(char* id, int length, int device) {
  OCTET_API_CALL();
  if (!IsDevice(device)) return Return(hipErrorInvalidDevice);
  char text[16];
  const int needed = std::snprintf(text, sizeof(text), "0000:%02x:00.0", device + 1);
  if (id == nullptr || length <= needed) return Return(hipErrorInvalidValue);
  std::memcpy(id, text, static_cast<size_t>(needed) + 1);
  return hipSuccess;
}

hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
  OCTET_API_CALL();
  if (can == nullptr) return Return(hipErrorInvalidValue);
  if (!IsDevice(device) || !IsDevice(peer)) return Return(hipErrorInvalidDevice);
  *can = device != peer ? 1 : 0;
  return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  OCTET_API_CALL();
  if (flags != 0) return Return(hipErrorInvalidValue);
  Device& device = CurrentDevice();
  if (!IsDevice(peer) || peer == device.id) return Return(hipErrorInvalidDevice);
  const uint32_t bit = 1U << peer;
  const uint32_t before = device.accessible.fetch_or(bit, std::memory_order_acq_rel);
  return Return((before & bit) != 0 ? hipErrorPeerAccessAlreadyEnabled : hipSuccess);
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
  OCTET_API_CALL();
  Device& device = CurrentDevice();
  if (!IsDevice(peer) || peer == device.id) return Return(hipErrorInvalidDevice);
  const uint32_t bit = 1U << peer;
  const uint32_t before = device.accessible.fetch_and(~bit, std::memory_order_acq_rel);
  device.machine->memory.AdvanceEpoch();
  return Return((before & bit) == 0 ? hipErrorPeerAccessNotEnabled : hipSuccess);
}

hipError_t hipDeviceSynchronize() {
  OCTET_DEVICE_CALL();
  return Return(CurrentDevice().SynchronizeAll());
}
