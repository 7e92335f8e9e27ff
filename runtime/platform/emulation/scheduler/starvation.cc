#include "scheduler/starvation.h"

#include "machine/machine.h"

namespace octet::emulation {
namespace {

// The maximum number of rounds for which a choice holds. A device gets enough time to be several
// kernels ahead or behind.
constexpr uint64_t kRandomRounds = 400;
constexpr uint64_t kPartRounds = 2'000;
constexpr uint64_t kDeviceRounds = 20'000;
constexpr uint64_t kDelayRounds = 2'000;

}  // namespace

void Starvation::BeginRound(const std::vector<Wave*>& waves) {
  if (rounds_left_-- > 0) return;
  if (kind_ == ScheduleKind::kRandom) {
    rounds_left_ = 1 + static_cast<uint32_t>(random_.Below(kRandomRounds));
    RollLevels();
    return;
  }
  const bool part = kind_ == ScheduleKind::kStarveBlock || kind_ == ScheduleKind::kStarveWave;
  rounds_left_ = 1 + static_cast<uint32_t>(random_.Below(part ? kPartRounds : kDeviceRounds));
  const Wave& chosen = *waves[random_.Below(waves.size())];
  device_ = chosen.block->grid->device->id;
  block_ = chosen.block->number;
  wave_ = chosen.index;
}

void Starvation::RollLevels() {
  static constexpr uint16_t kLevels[8] = {0, 0, 0, 64, 128, 240, 254, 256};
  device_level_.fill(0);
  block_level_.fill(0);
  wave_level_.fill(0);
  const uint64_t what = random_.Below(4);
  const auto roll = [this](auto& levels) {
    for (uint16_t& level : levels) level = kLevels[random_.Below(8)];
    levels[random_.Below(levels.size())] = 0;
  };
  if (what != 1) roll(device_level_);
  if (what == 1 || what == 3) roll(block_level_);
  if (what == 2) roll(wave_level_);
}

bool Starvation::IsLate(const Wave& wave) const {
  const int device = wave.block->grid->device->id;
  if (kind_ == ScheduleKind::kLap) return device != device_;
  if (device != device_) return false;
  if (kind_ == ScheduleKind::kStarveDevice || kind_ == ScheduleKind::kDelayDevice) return true;
  if (wave.block->number != block_) return false;
  return kind_ == ScheduleKind::kStarveBlock || wave.index == wave_;
}

bool Starvation::PassesOver(Wave* wave) {
  if (kind_ == ScheduleKind::kRandom) {
    const size_t device = static_cast<size_t>(wave->block->grid->device->id);
    const size_t block = wave->block->number % block_level_.size();
    const size_t in_block = static_cast<size_t>(wave->index) % wave_level_.size();
    const uint64_t roll = random_.Below(256);
    return roll < device_level_[device] || roll < block_level_[block] ||
           roll < wave_level_[in_block];
  }
  if (!IsLate(*wave)) return false;
  if (kind_ != ScheduleKind::kDelayDevice) return true;
  if (!wave->has_begun) {
    wave->has_begun = true;
    wave->rounds_held = static_cast<uint32_t>(random_.Below(kDelayRounds));
  }
  if (wave->rounds_held == 0) return false;
  --wave->rounds_held;
  return true;
}

bool Starvation::DelaysStore(Wave* wave) {
  if (kind_ != ScheduleKind::kDelayDevice || !IsLate(*wave) || random_.Below(2) == 0) return false;
  wave->rounds_held = 1 + static_cast<uint32_t>(random_.Below(kDelayRounds));
  return true;
}

}  // namespace octet::emulation
