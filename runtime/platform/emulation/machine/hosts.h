// The activity of the host threads, as far as a schedule depends on it.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_HOSTS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_HOSTS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace octet::emulation {

class HostThread;

// All threads that have enqueued work or waited. Thread-safe.
class Hosts {
 public:
  // Returns whether all these threads wait for something that has not happened, so that only the
  // devices can make progress. A thread that does not announce its waits counts as waiting if no
  // thread has been active for a while; for longer if it is runnable, since it may lack a CPU.
  bool AreQuiet();

  // Returns when all threads wait, or after a while.
  void AwaitQuiet();

 private:
  friend class HostThread;

  std::mutex mutex_;
  std::condition_variable all_wait_;
  std::vector<const HostThread*> threads_;
  uint64_t moving_since_ns_ = 0;  // when a thread was last active, or all were last seen waiting
};

// The calling thread's part of Hosts. It may outlive the machine that owns the Hosts.
class HostThread {
 public:
  static HostThread& OfThread();
  ~HostThread() { Join(nullptr); }

  // The thread is active and may enqueue more.
  void GoOn(const std::shared_ptr<Hosts>& hosts);
  // The thread waits until GoOn, unless `over` is true. Other threads call `over`, but not after
  // GoOn has returned. `over` must not use Hosts.
  void Wait(const std::shared_ptr<Hosts>& hosts, std::function<bool()> over);

 private:
  friend class Hosts;
  HostThread();
  // As far as the operating system tells: running, or waiting for a CPU.
  bool IsRunnable() const;
  void Join(const std::shared_ptr<Hosts>& hosts);

  const int tid_;
  std::shared_ptr<Hosts> hosts_;
  std::function<bool()> over_;  // guarded by hosts_->mutex_
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_HOSTS_H_
