// Random numbers of a schedule.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_RANDOM_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_RANDOM_H_

#include <cstdint>

namespace octet::emulation {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 11;
  }
  uint64_t Below(uint64_t end) { return (*this)() % end; }

 private:
  uint64_t state_;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_RANDOM_H_
