// What the host threads do, as far as a schedule has to know.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_HOSTS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_HOSTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace octet::emulation {

class HostThread;

// All threads that have enqueued something or waited. Thread-safe.
class Hosts {
 public:
  // Whether every one of them waits for what has not come, so that only the devices can go on. Who
  // waits in ways of its own is taken to do so when no thread has done anything for a while.
  bool AreQuiet();

 private:
  friend class HostThread;

  std::mutex mutex_;
  std::vector<const HostThread*> threads_;
  uint64_t moving_since_ns_ = 0;  // when a thread last went on, or all were last seen waiting
};

// The calling thread's part. It may outlive the machine that has the Hosts.
class HostThread {
 public:
  static HostThread& OfThread();
  ~HostThread() { Join(nullptr); }

  // It does something, and may enqueue more.
  void GoOn(const std::shared_ptr<Hosts>& hosts);
  // Until GoOn it waits, unless `over`: called by other threads, and no more once GoOn returns.
  // Must not use Hosts.
  void Wait(const std::shared_ptr<Hosts>& hosts, std::function<bool()> over);

 private:
  friend class Hosts;
  void Join(const std::shared_ptr<Hosts>& hosts);

  std::shared_ptr<Hosts> hosts_;
  std::function<bool()> over_;  // guarded by hosts_->mutex_
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_HOSTS_H_
