// What only an emulated machine can tell or do: for tests and tools. Host code of the emulation
// platform only.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "machine/config.h"

namespace octet::emulation {

// Why kernels ended with an error since the last ClearErrors(): refused accesses, divergent waves,
// and for a stuck machine what every lane waits for. Empty if none did.
std::string LastReport();

// Makes the devices usable again after an error of a kernel. Nothing may be running.
void ClearErrors();

// Builds with weak memory (OCTET_SANITIZE=weak-memory): plain loads that were shown an old value,
// because nothing ordered the store of the newer one before them. None by kernels that are correct.
struct StaleReads {
  uint64_t count = 0;
  std::string text;  // who has read and who has stored what and where, for the first of them
};

// Those of all kernels that have finished since the last call. When the process ends, those that
// nobody has asked for are printed to stderr.
StaleReads TakeStaleReads();

// Kernels, by name, that were loaded on a device by their first launch there since the last call,
// with the device; whoever asks about a kernel (hipFuncGetAttributes) has loaded it before.
std::vector<std::pair<std::string, int>> TakeKernelsLoadedByLaunches();

Config CurrentConfig();

// A new machine instead of the present one: memory, streams and events are gone. Nothing may be
// running and no other thread may use HIP meanwhile.
void Reconfigure(const Config& config);

// The calling host thread waits for others, in a way that the machine cannot see: HostWait in
// gpu_schedule.h.
void BeginHostWait(std::function<bool()> over);
void EndHostWait();

// ---- Misuse by the bodies of ranks: misuse.h.

// From here to EndBody the calling thread runs the body of a rank. `report` is called, at most
// once, from inside a HIP call that can wait for a device while kernels of KernelsWait are
// outstanding.
void BeginBody(std::function<void(const std::string&)> report);
void EndBody();

// The body has given the stream kernels that wait for other ranks, the last one just now. Not while
// the stream is captured: nothing is executed then.
void KernelsWait(hipStream_t stream);
// The body has waited for them.
void KernelsHaveEnded();

// Says where `pointer` lies; empty if it is null or in an allocation of the device.
std::string PlaceOutside(int device, const void* pointer);

// An error that one call of the HIP API returns instead of doing its work.
struct Injection {
  // Which call, counted from InjectError on. Polls that are told "not ready" and calls that cannot
  // fail do not count, so that the same program makes the same calls each time.
  uint64_t call = 1;
  int device = -1;  // only calls of threads whose current device this is; -1: of all threads
  hipError_t error = hipErrorUnknown;
};

// Takes the place of an injection that has not come yet.
void InjectError(const Injection& injection);

// Takes the injection back. The name of the call that it came to, empty if it did not.
std::string EndInjection();

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_
