// Queries and controls that only an emulated machine offers, for tests and tools. Only host code of
// the emulation platform may include it.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine/config.h"

namespace octet::emulation {

// Returns why kernels have ended with an error since the last ClearErrors(): refused accesses,
// divergent waves, and for a stuck machine what every lane waits for. Empty if none has.
std::string LastReport();

// Makes the devices usable again after a kernel error. Nothing may be running.
void ClearErrors();

// Plain loads that were given an old value, because nothing ordered the newer store before them.
// Only in builds with weak memory (OCTET_SANITIZE=weak-memory). Correct kernels have none.
struct StaleReads {
  uint64_t count = 0;
  std::string text;  // which code read, which stored, and where; for the first of them
};

// Returns the stale reads of all kernels that have finished since the last call. At the end of the
// process those not taken are printed to stderr.
StaleReads TakeStaleReads();

// Returns the kernels, by name and device, that their first launch has loaded on the device since
// the last call. A query about a kernel (hipFuncGetAttributes) also loads it, and is not reported.
std::vector<std::pair<std::string, int>> TakeKernelsLoadedByLaunches();

// Returns why the device has had no chance to run for a while, in a sentence that names the kernel
// that has held its thread. Empty if it has had one.
std::string WhatHolds(int device);

Config CurrentConfig();

// Replaces the machine: all memory, streams and events are gone. Nothing may be running, and no
// other thread may use HIP meanwhile.
void Reconfigure(const Config& config);

// The calling host thread begins or ends a wait for other threads that the machine cannot see:
// HostWait in gpu_schedule.h.
void BeginHostWait(std::function<bool()> over);
void EndHostWait();

// ---- Misuse by the bodies of ranks: misuse.h

// From here to EndBody the calling thread runs the body of a rank. Calls `report`, at most once,
// from inside a HIP call that can wait for a device while kernels announced by KernelsWait are
// outstanding.
void BeginBody(std::function<void(const std::string&)> report);
void EndBody();

// The body has just enqueued a kernel on `stream` that waits for other ranks. Not called while the
// stream is captured: nothing is executed then.
void KernelsWait(hipStream_t stream);
// The body has waited for these kernels.
void KernelsHaveEnded();

// Returns where `pointer` lies; empty if it is null or in an allocation of the device.
std::string PlaceOutside(int device, const void* pointer);

// Returns the bytes from `pointer` to the end of its allocation; nullopt if it is in none.
std::optional<size_t> BytesFrom(const void* pointer);

// An error that one HIP call returns instead of doing its work.
struct Injection {
  // The number of the call, counted from InjectError. Polls that return "not ready" and calls that
  // cannot fail do not count, so that the same program makes the same calls each time.
  uint64_t call = 1;
  int device = -1;  // counts calls of threads whose current device this is; -1: all threads
  std::string_view name = {};  // counts calls of this function, a literal; empty: of all functions
  hipError_t error = hipErrorUnknown;
};

// Replaces an injection that has not happened yet.
void InjectError(const Injection& injection);

// Ends the injection. Returns the name of the call that it hit, empty if none.
std::string EndInjection();

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_
