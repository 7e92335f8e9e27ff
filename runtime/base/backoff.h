// Backoff for host threads that poll.
#ifndef OCTET_RUNTIME_BASE_BACKOFF_H_
#define OCTET_RUNTIME_BASE_BACKOFF_H_

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "runtime/base/cpu_affinity.h"

namespace octet {

// Use one object per wait and call Wait between polls. Threads that only yield take time from those
// that have work to do, so that the fewer cores there are, the sooner a poll sleeps. It sleeps
// longer the longer the wait takes, at most a sixteenth of it.
class Backoff {
 public:
  enum class Cores {
    kOwn,     // one for every polling thread: polls for 100 us, then yields
    kShared,  // some are idle now and then: yields for a millisecond, then sleeps
    kFew,     // fewer than there are polling threads: sleeps almost at once
  };

  // What to choose for `num_threads` threads that poll at the same time.
  static Cores CoresFor(int num_threads) {
    return num_threads <= static_cast<int>(AllowedCpus().size()) ? Cores::kOwn : Cores::kFew;
  }

  explicit Backoff(Cores cores) : cores_(cores) {}

  void Wait() {
    ++polls_;
    if (cores_ == Cores::kOwn && polls_ < kSpins) {
      Relax();
    } else if (cores_ == Cores::kOwn || polls_ < (cores_ == Cores::kFew ? kFewYields : kYields)) {
      std::this_thread::yield();
    } else {
      const uint64_t micros = std::clamp(slept_micros_ / 16, kLeastMicros, kMostMicros);
      usleep(static_cast<useconds_t>(micros));
      slept_micros_ += micros;
    }
  }
  uint64_t polls() const { return polls_; }

 private:
  static constexpr uint64_t kSpins = 4096;
  static constexpr uint64_t kYields = 1024;
  static constexpr uint64_t kFewYields = 16;
  static constexpr uint64_t kLeastMicros = 50;
  static constexpr uint64_t kMostMicros = 2000;

  static void Relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const Cores cores_;
  uint64_t polls_ = 0;
  uint64_t slept_micros_ = 0;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_BASE_BACKOFF_H_
