// A thread for calls of a library that may not return.
#ifndef OCTET_RUNTIME_NET_CALL_THREAD_H_
#define OCTET_RUNTIME_NET_CALL_THREAD_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace octet {

// After a call the thread stays awake for a short while, so that another one that follows soon
// begins within a microsecond. Used by one thread at a time.
class CallThread {
 public:
  CallThread() = default;
  // Ends the thread; leaves it behind if it is in a call.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  // Wakes the thread for a call that follows soon. Optional.
  void Wake();

  // Makes `call` on the thread and returns its result. `go_on` is asked meanwhile; once it returns
  // false, this returns kCancelled and leaves the thread behind with the call, which must own what
  // it uses; one that has not begun is not made. kResourceExhausted if there can be no thread.
  absl::Status Make(std::function<absl::Status()> call, absl::FunctionRef<bool()> go_on);

 private:
  struct Shared;

  absl::Status Start();
  void LeaveBehind();

  std::shared_ptr<Shared> shared_;  // null: there is no thread
  std::thread thread_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_CALL_THREAD_H_
