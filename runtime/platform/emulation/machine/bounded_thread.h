// A thread that may never come back.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_BOUNDED_THREAD_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_BOUNDED_THREAD_H_

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace octet::emulation {

class BoundedThread {
 public:
  // Returns false if there can be no thread.
  bool Start(std::function<void()> body);
  bool started() const { return thread_.joinable(); }

  // Waits for the body to return. Returns false at `latest`, and then leaves the thread behind:
  // what the body uses must never be freed. True without a thread.
  bool EndsBy(std::chrono::steady_clock::time_point latest);

 private:
  struct State;  // outlives this object

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MACHINE_BOUNDED_THREAD_H_
