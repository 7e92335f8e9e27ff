// A lock for the few places that lanes reach too. Unlike std::mutex it is invisible to
// ThreadSanitizer, which would otherwise treat it as synchronisation between lanes.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_SPIN_LOCK_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_SPIN_LOCK_H_

#include <sched.h>

#include <atomic>

namespace octet::emulation {

class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_SPIN_LOCK_H_
