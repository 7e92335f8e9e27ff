#include "config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <system_error>
#include <thread>

#include "kernel_interface.h"
#include "sanitizer.h"

namespace octet::emulation {
namespace {

template <typename T>
void Read(const char* name, T* value, uint64_t unit = 1) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 0);
  if (*end == '\0') *value = static_cast<T>(number * unit);
}

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
  Read("OCTET_EMULATION_DEVICES", &c.devices);
  Read("OCTET_EMULATION_WAVE_SIZE", &c.wave_size);
  Read("OCTET_EMULATION_COMPUTE_UNITS", &c.compute_units);
  Read("OCTET_EMULATION_THREADS_PER_UNIT", &c.threads_per_unit);
  Read("OCTET_EMULATION_MEMORY_MB", &c.memory_bytes, 1ULL << 20);
  Read("OCTET_EMULATION_FRESH_PATTERN_BYTES", &c.fresh_pattern_bytes);
  Read("OCTET_EMULATION_WORKERS", &c.workers);
  Read("OCTET_EMULATION_STACK_KB", &c.stack_bytes, 1024);
  Read("OCTET_EMULATION_RECHECK_US", &c.recheck_us);
  Read("OCTET_EMULATION_STUCK_TIMEOUT_MS", &c.stuck_timeout_ms);
  if (const char* schedule = std::getenv("OCTET_EMULATION_SCHEDULE"); schedule != nullptr) {
    ParseSchedule(schedule, &c);
  }
  return c.Normalized();
}

Config Config::Normalized() const {
  Config c = *this;
  c.devices = std::clamp(c.devices, 1, kMaxDevices);
  c.wave_size = c.wave_size == 32 ? 32 : 64;
  c.compute_units = std::clamp(c.compute_units, 1, 1024);
  c.threads_per_unit = std::clamp(c.threads_per_unit, 64, 2048);
  c.memory_bytes = std::clamp<uint64_t>(c.memory_bytes, 1ULL << 20, 32ULL << 30);
  if (c.seed != 0 && c.schedule == ScheduleKind::kAny) {
    c.schedule = kKinds[c.seed % std::size(kKinds)].kind;
  }
  if (c.workers <= 0 && c.seed != 0) c.workers = 1;
  if (c.workers <= 0) c.workers = static_cast<int>(std::thread::hardware_concurrency());
  c.workers = kWeakMemory ? 1 : std::clamp(c.workers, 1, c.devices);
  if (c.stack_bytes == 0) c.stack_bytes = kAsan || kTsan || kWeakMemory ? 64 << 10 : 16 << 10;
  c.stack_bytes = (std::clamp<size_t>(c.stack_bytes, 8 << 10, 8 << 20) + 4095) & ~size_t{4095};
  c.recheck_us = std::clamp(c.recheck_us, 10, 1'000'000);
  c.stuck_timeout_ms = std::max(c.stuck_timeout_ms, 1);
  return c;
}

int wave_size = Config::FromEnvironment().wave_size;

}  // namespace octet::emulation
