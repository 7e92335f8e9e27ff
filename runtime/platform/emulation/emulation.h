// What only an emulated machine can tell or do: for tests and tools. Host code of the emulation
// platform only.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_EMULATION_H_

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include "config.h"

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

Config CurrentConfig();

// A new machine instead of the present one: memory, streams and events are gone. Nothing may be
// running and no other thread may use HIP meanwhile.
void Reconfigure(const Config& config);

// The calling host thread waits for others, in a way that the machine cannot see: HostWait in
// gpu_schedule.h.
void BeginHostWait(std::function<bool()> over);
void EndHostWait();

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
