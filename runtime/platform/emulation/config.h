// What an emulated machine looks like and how its kernels are scheduled. Every member has an
// environment variable, read once when the process first uses the HIP API (the wave size: when it
// starts).
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_CONFIG_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_CONFIG_H_

#include <cstddef>
#include <cstdint>

namespace octet::emulation {

inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxWaveSize = 64;

struct Config {
  // ---- the machine
  int devices = 8;                        // OCTET_EMULATION_DEVICES: GPUs, 1 to 16
  int wave_size = 64;                     // OCTET_EMULATION_WAVE_SIZE: 32 or 64
  int compute_units = 4;                  // OCTET_EMULATION_COMPUTE_UNITS: per GPU
  int threads_per_unit = 1024;            // OCTET_EMULATION_THREADS_PER_UNIT: resident ones
  uint64_t memory_bytes = 16ULL << 30;    // OCTET_EMULATION_MEMORY_MB: per GPU, committed lazily
  uint64_t fresh_pattern_bytes = 65'536;  // OCTET_EMULATION_FRESH_PATTERN_BYTES: that much of every
                                          // new allocation is filled with 0xa5, not with zeros

  // ---- the CPU
  int workers = 0;         // OCTET_EMULATION_WORKERS: threads; 0: as many as cores, at most devices
  size_t stack_bytes = 0;  // OCTET_EMULATION_STACK_KB: per lane; 0: 16 KB, 64 KB with a sanitizer

  // ---- time
  int recheck_us = 1000;          // OCTET_EMULATION_RECHECK_US: a lane that waits for a value runs
                                  // again after this long at most, so that it sees the clock
  int stuck_timeout_ms = 60'000;  // OCTET_EMULATION_STUCK_TIMEOUT_MS: kernels that make no progress
                                  // for so long end with an error

  // ---- schedule
  uint64_t seed = 0;  // OCTET_EMULATION_SEED: 0: as fast as possible; else an adversarial schedule
                      // and virtual time; with one worker the seed means the same run each time

  static Config FromEnvironment();

  // Every member brought into its range, the zeros above replaced.
  Config Normalized() const;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_CONFIG_H_
