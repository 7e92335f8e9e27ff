// Chooses what is late under a schedule. Uniformly random orders find few bugs; what finds them is
// a device, block or wave that is late by a lot.
//
// A worker runs its waves in rounds. Waves that are passed over run only in rounds in which no
// other wave made progress, so nothing is late for ever.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_STARVATION_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_STARVATION_H_

#include <array>
#include <cstdint>
#include <vector>

#include "machine/config.h"
#include "scheduler/grid.h"
#include "scheduler/random.h"

namespace octet::emulation {

class Starvation {
 public:
  Starvation(ScheduleKind kind, Random* random) : kind_(kind), random_(*random) {}

  // Called before each round, with all waves of the worker.
  void BeginRound(const std::vector<Wave*>& waves);
  // Returns whether the wave is passed over in this round.
  bool PassesOver(Wave* wave);
  // Called when a lane of the wave is about to store at system scope. Returns whether the store
  // must wait.
  bool DelaysStore(Wave* wave);

 private:
  bool IsLate(const Wave& wave) const;
  void RollLevels();

  const ScheduleKind kind_;
  Random& random_;
  uint32_t rounds_left_ = 0;  // of the current choice

  // kRandom: how often, out of 256, waves are passed over by device, by block and by place in their
  // block.
  std::array<uint16_t, kMaxDevices> device_level_{};
  std::array<uint16_t, 16> block_level_{};
  std::array<uint16_t, 16> wave_level_{};

  // All kinds except kRandom: the one that is late (kLap: the one that is not).
  int device_ = 0;
  uint32_t block_ = 0;
  int wave_ = 0;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_STARVATION_H_
