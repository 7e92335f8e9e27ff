// How a host thread passes the time while it polls.
#ifndef OCTET_RUNTIME_BACKOFF_H_
#define OCTET_RUNTIME_BACKOFF_H_

#include <unistd.h>

#include <cstdint>
#include <thread>

namespace octet {

// One per wait; call Wait between polls. With a core for every polling thread (`spin`) a poll
// follows the last one within nanoseconds for about the first 100 µs; otherwise, and after that,
// the core is offered to others. Threads without cores of their own end up sleeping, since threads
// that only yield still take their share of the time from those that have work to do.
class Backoff {
 public:
  explicit Backoff(bool spin) : spin_(spin) {}

  void Wait() {
    ++polls_;
    if (spin_ && polls_ < kSpins) {
      Relax();
    } else if (spin_ || polls_ < kYields) {
      std::this_thread::yield();
    } else {
      usleep(kSleepMicros);
    }
  }
  uint64_t polls() const { return polls_; }

 private:
  static constexpr uint64_t kSpins = 4096;
  static constexpr uint64_t kYields = 1024;
  static constexpr useconds_t kSleepMicros = 50;

  static void Relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const bool spin_;
  uint64_t polls_ = 0;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_BACKOFF_H_
