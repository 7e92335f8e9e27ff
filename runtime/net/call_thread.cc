#include "runtime/net/call_thread.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/backoff.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

// How long the thread stays awake.
constexpr std::chrono::microseconds kAwake(200);

}  // namespace

struct CallThread::Shared {
  Mutex mutex;
  CondVar changed;
  std::function<absl::Status()> call ABSL_GUARDED_BY(mutex);
  // Looked at without the mutex while the thread is awake; changed under it.
  std::atomic<uint64_t> posted{0};
  std::atomic<uint64_t> wakes{0};
  std::atomic<bool> stop{false};
  // The last call that has ended returned this; written before `ended`.
  absl::Status result;
  std::atomic<uint64_t> ended{0};

  // Waits for a call and takes it; null: the thread is to end. `seen`: the calls so far.
  std::function<absl::Status()> Take(uint64_t seen) {
    uint64_t wakes_seen = wakes.load();
    while (true) {
      const Clock::time_point sleep = Clock::now() + kAwake;
      while (posted.load() == seen && !stop.load() && Clock::now() < sleep) {
        std::this_thread::yield();
      }
      MutexLock lock(&mutex);
      while (posted.load() == seen && !stop.load() && wakes.load() == wakes_seen) {
        changed.Wait(&mutex);
      }
      if (stop.load()) return nullptr;
      if (posted.load() > seen) return std::exchange(call, nullptr);
      wakes_seen = wakes.load();
    }
  }

  void Loop() {
    uint64_t seen = 0;
    while (std::function<absl::Status()> next = Take(seen)) {
      result = next();
      next = nullptr;
      ended.store(++seen, std::memory_order_release);
    }
  }
};

CallThread::~CallThread() { LeaveBehind(); }

void CallThread::LeaveBehind() {
  if (shared_ == nullptr) return;
  const bool calling = shared_->ended.load(std::memory_order_acquire) != shared_->posted.load();
  {
    MutexLock lock(&shared_->mutex);
    shared_->stop.store(true);
    shared_->changed.Signal();
  }
  if (calling) {
    thread_.detach();
  } else {
    thread_.join();
  }
  shared_ = nullptr;
}

absl::Status CallThread::Start() {
  shared_ = std::make_shared<Shared>();
  // The standard library reports by exceptions only.
  try {
    thread_ = std::thread([shared = shared_] { shared->Loop(); });
  } catch (const std::system_error& error) {
    shared_ = nullptr;
    return absl::ResourceExhaustedError(absl::StrCat("no thread for calls: ", error.what()));
  }
  return absl::OkStatus();
}

void CallThread::Wake() {
  if (shared_ == nullptr) return;
  MutexLock lock(&shared_->mutex);
  ++shared_->wakes;
  shared_->changed.Signal();
}

absl::Status CallThread::Make(std::function<absl::Status()> call, absl::FunctionRef<bool()> go_on) {
  if (shared_ == nullptr) OCTET_RETURN_IF_ERROR(Start());
  uint64_t number = 0;
  {
    MutexLock lock(&shared_->mutex);
    shared_->call = std::move(call);
    number = ++shared_->posted;
    shared_->changed.Signal();
  }
  Backoff backoff(Backoff::Cores::kShared);
  while (shared_->ended.load(std::memory_order_acquire) != number) {
    if (!go_on()) {
      LeaveBehind();
      return absl::CancelledError("the call has not ended");
    }
    backoff.Wait();
  }
  return std::exchange(shared_->result, absl::OkStatus());
}

}  // namespace octet
