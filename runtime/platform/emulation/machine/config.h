// The configuration of an emulated machine and its schedule. Every member has an environment
// variable, read once when the process first uses the HIP API (the wave size: when the process
// starts).
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_CONFIG_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace octet::emulation {

inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxWaveSize = 64;

// Names the part of the machine that is late: it runs only when nothing else can make progress.
// Everything else is random in each kind: the order of lanes and waves, and where lanes yield.
enum class ScheduleKind {
  kAny,           // one of the other kinds, chosen by the seed
  kRandom,        // random devices, blocks and waves, most of the time or always, for a while
  kStarveDevice,  // one device, for thousands of turns, then another
  kStarveBlock,   // one block of one device
  kStarveWave,    // one wave of one block
  kDelayDevice,   // one device, at the start of its kernels and at its stores at system scope
  kLap,           // all devices but one, which gets as many calls ahead as it can
};

struct Config {
  // ---- the machine
  int devices = 8;                      // OCTET_EMULATION_DEVICES: GPUs, 1 to 16
  int wave_size = 64;                   // OCTET_EMULATION_WAVE_SIZE: 32 or 64
  int compute_units = 4;                // OCTET_EMULATION_COMPUTE_UNITS: per GPU
  int threads_per_unit = 1024;          // OCTET_EMULATION_THREADS_PER_UNIT: resident threads
  size_t shared_bytes = 64 << 10;       // OCTET_EMULATION_SHARED_KB: shared memory of a unit
  uint64_t memory_bytes = 16ULL << 30;  // OCTET_EMULATION_MEMORY_MB: per GPU, committed lazily

  // ---- the CPU
  int workers = 0;  // OCTET_EMULATION_WORKERS: threads; 0: as many as cores, at most devices,
                    // and one under a schedule; one always in builds with weak memory
  size_t stack_bytes = 0;  // OCTET_EMULATION_STACK_KB: per lane; 0: 16 KB, 64 KB with a sanitizer

  // ---- time
  int recheck_us = 1000;          // OCTET_EMULATION_RECHECK_US: a lane that waits for a value runs
                                  // again after this long at most, so that it sees the clock
  int stuck_timeout_ms = 60'000;  // OCTET_EMULATION_STUCK_TIMEOUT_MS: kernels that make no progress
                                  // for so long end with an error

  // ---- schedule
  // OCTET_EMULATION_SCHEDULE=KIND:SEED or SEED: an adversarial schedule and virtual time. With one
  // worker, the default under a schedule, every run is the same.
  ScheduleKind schedule = ScheduleKind::kAny;
  uint64_t seed = 0;  // 0: no schedule, as fast as possible

  // A sentence about the variable with an invalid value; empty: none. hipGetDeviceCount then fails,
  // rather than run something other than what was requested.
  std::string misread;

  static Config FromEnvironment();

  // Returns the configuration with every member brought into its range and the zeros above
  // replaced.
  Config Normalized() const;
};

// Reads kind and seed from KIND:SEED, or from SEED alone, which means kAny. Returns false if the
// text is neither.
bool ParseSchedule(std::string_view text, Config* config);

// Returns KIND:SEED; empty without a schedule.
std::string ScheduleText(const Config& config);

// Returns the names of all kinds except kAny, separated by commas.
std::string ScheduleKinds();

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_CONFIG_H_
