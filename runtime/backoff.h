// Backoff for host threads that poll.
#ifndef OCTET_RUNTIME_BACKOFF_H_
#define OCTET_RUNTIME_BACKOFF_H_

#include <unistd.h>

#include <cstdint>
#include <thread>

namespace octet {

// Use one object per wait and call Wait between polls. With `spin` (a core for every polling
// thread), polls follow each other within nanoseconds for about the first 100 µs, and then yield
// the core. Without it, polls first yield and then sleep, since threads that only yield still take
// CPU time from those that have work to do.
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
