#include "machine/config.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <iterator>
#include <system_error>
#include <thread>

#include "hip/kernel_interface.h"
#include "sanitizers/sanitizer.h"
#include "scheduler/resource_pool.h"

namespace octet::emulation {
namespace {

// The valid values of a member, in the unit of its variable.
struct Range {
  uint64_t least;
  uint64_t most;
};
constexpr uint64_t kKb = 1 << 10;
constexpr uint64_t kMb = 1 << 20;
constexpr Range kDevices = {1, kMaxDevices};
constexpr Range kWaveSizes = {32, kMaxWaveSize};  // only these two values
constexpr Range kUnits = {1, 1024};
constexpr Range kThreads = {64, 2048};
constexpr Range kSharedKb = {1, kSharedBytesPerBlock >> 10};
constexpr Range kMemoryMb = {1, 32 << 10};
constexpr Range kStackKb = {8, 8 << 10};
constexpr Range kRecheckUs = {10, 1'000'000};
constexpr Range kStuckTimeoutMs = {1, INT_MAX};
constexpr Range kFromZero = {0, INT_MAX};

template <typename T>
T Clamp(T value, Range range, uint64_t unit = 1) {
  return std::clamp(value, static_cast<T>(range.least * unit), static_cast<T>(range.most * unit));
}

// Reads members from variables. Config::misread describes the first one that is invalid.
class Environment {
 public:
  explicit Environment(Config* config) : config_(*config) {}

  template <typename T>
  void Read(const char* name, Range range, T Config::* member, uint64_t unit = 1) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return;
    const std::string_view digits = text;
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text, text + digits.size(), number);
    if (error != std::errc() || *end != '\0' || number < range.least || number > range.most) {
      Refuse(name, text,
             "a whole number from " + std::to_string(range.least) + " to " +
                 std::to_string(range.most));
      return;
    }
    config_.*member = static_cast<T>(number * unit);
  }

  void Refuse(const char* name, const std::string& text, const std::string& wanted) {
    if (config_.misread.empty()) config_.misread = name + (" is '" + text + "': not ") + wanted;
  }

 private:
  Config& config_;
};

struct KindName {
  ScheduleKind kind;
  std::string_view name;
};
constexpr KindName kKinds[] = {
    {ScheduleKind::kRandom, "random"},
    {ScheduleKind::kStarveDevice, "starve_device"},
    {ScheduleKind::kStarveBlock, "starve_block"},
    {ScheduleKind::kStarveWave, "starve_wave"},
    {ScheduleKind::kDelayDevice, "delay_device"},
    {ScheduleKind::kLap, "lap"},
};

}  // namespace

bool ParseSchedule(std::string_view text, Config* config) {
  ScheduleKind kind = ScheduleKind::kAny;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    const auto* named = std::ranges::find(kKinds, text.substr(0, colon), &KindName::name);
    if (named == std::end(kKinds)) return false;
    kind = named->kind;
    text.remove_prefix(colon + 1);
  }
  uint64_t seed = 0;
  const std::string digits(text);
  const char* const end = digits.data() + digits.size();
  const auto [read, error] = std::from_chars(digits.data(), end, seed);
  if (error != std::errc() || read != end || seed == 0) return false;
  config->schedule = kind;
  config->seed = seed;
  return true;
}

std::string ScheduleText(const Config& config) {
  const Config c = config.Normalized();
  if (c.seed == 0) return {};
  const auto* kind = std::ranges::find(kKinds, c.schedule, &KindName::kind);
  return std::string(kind->name) + ":" + std::to_string(c.seed);
}

std::string ScheduleKinds() {
  std::string names;
  for (const KindName& kind : kKinds) {
    if (!names.empty()) names += ", ";
    names += kind.name;
  }
  return names;
}

Config Config::FromEnvironment() {
  Config c;
  Environment read(&c);
  read.Read("OCTET_EMULATION_DEVICES", kDevices, &Config::devices);
  read.Read("OCTET_EMULATION_WAVE_SIZE", kFromZero, &Config::wave_size);
  if (c.wave_size != kWaveSizes.least && c.wave_size != kWaveSizes.most) {
    read.Refuse("OCTET_EMULATION_WAVE_SIZE", std::to_string(c.wave_size), "32 or 64");
  }
  read.Read("OCTET_EMULATION_COMPUTE_UNITS", kUnits, &Config::compute_units);
  read.Read("OCTET_EMULATION_THREADS_PER_UNIT", kThreads, &Config::threads_per_unit);
  read.Read("OCTET_EMULATION_SHARED_KB", kSharedKb, &Config::shared_bytes, kKb);
  read.Read("OCTET_EMULATION_MEMORY_MB", kMemoryMb, &Config::memory_bytes, kMb);
  read.Read("OCTET_EMULATION_WORKERS", kFromZero, &Config::workers);
  read.Read("OCTET_EMULATION_STACK_KB", {0, kStackKb.most}, &Config::stack_bytes, kKb);
  read.Read("OCTET_EMULATION_RECHECK_US", kRecheckUs, &Config::recheck_us);
  read.Read("OCTET_EMULATION_STUCK_TIMEOUT_MS", kStuckTimeoutMs, &Config::stuck_timeout_ms);
  constexpr const char* kSchedule = "OCTET_EMULATION_SCHEDULE";
  const char* schedule = std::getenv(kSchedule);
  if (schedule != nullptr && *schedule != '\0' && !ParseSchedule(schedule, &c)) {
    read.Refuse(kSchedule, schedule, "SEED or KIND:SEED, of the kinds " + ScheduleKinds());
  }
  return c.Normalized();
}

Config Config::Normalized() const {
  Config c = *this;
  c.devices = Clamp(c.devices, kDevices);
  c.wave_size = c.wave_size == 32 ? 32 : 64;
  c.compute_units = Clamp(c.compute_units, kUnits);
  c.threads_per_unit = Clamp(c.threads_per_unit, kThreads);
  c.shared_bytes = Clamp(c.shared_bytes, kSharedKb, kKb);
  c.memory_bytes = Clamp(c.memory_bytes, kMemoryMb, kMb);
  if (c.seed != 0 && c.schedule == ScheduleKind::kAny) {
    c.schedule = kKinds[c.seed % std::size(kKinds)].kind;
  }
  if (c.workers <= 0 && c.seed != 0) c.workers = 1;
  if (c.workers <= 0) c.workers = static_cast<int>(std::thread::hardware_concurrency());
  c.workers = kWeakMemory ? 1 : std::clamp(c.workers, 1, c.devices);
  if (c.stack_bytes == 0) c.stack_bytes = kAsan || kTsan || kWeakMemory ? 64 << 10 : 16 << 10;
  c.stack_bytes = (Clamp(c.stack_bytes, kStackKb, kKb) + 4095) & ~size_t{4095};
  c.recheck_us = Clamp(c.recheck_us, kRecheckUs);
  c.stuck_timeout_ms = Clamp(c.stuck_timeout_ms, kStuckTimeoutMs);
  return c;
}

int wave_size = Config::FromEnvironment().wave_size;

}  // namespace octet::emulation
