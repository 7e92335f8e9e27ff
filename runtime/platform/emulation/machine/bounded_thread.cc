#include "machine/bounded_thread.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace octet::emulation {

struct BoundedThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
};

bool BoundedThread::Start(std::function<void()> body) {
  state_ = std::make_shared<State>();
  // The standard library reports by exceptions only.
  try {
    thread_ = std::thread([state = state_, body = std::move(body)] {
      body();
      std::lock_guard lock(state->mutex);
      state->ended = true;
      state->changed.notify_all();
    });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

bool BoundedThread::EndsBy(std::chrono::steady_clock::time_point latest) {
  if (!started()) return true;
  bool ended = false;
  {
    std::unique_lock lock(state_->mutex);
    ended = state_->changed.wait_until(lock, latest, [this] { return state_->ended; });
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return ended;
}

}  // namespace octet::emulation
