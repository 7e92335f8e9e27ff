#include "machine/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "machine/machine.h"

namespace octet::emulation {
namespace {

// How long a thread that does not announce its waits may do nothing before it counts as waiting. A
// runnable thread may spin, or a busy machine may keep it from running.
constexpr uint64_t kPatienceNs = 100'000'000;
constexpr uint64_t kRunnablePatienceNs = 2'000'000'000;
// How often AwaitQuiet looks for threads that do not announce their waits.
constexpr std::chrono::microseconds kLook{200};

}  // namespace

bool Hosts::AreQuiet() {
  std::lock_guard lock(mutex_);
  const auto waits = [](const HostThread* thread) {
    return thread->over_ != nullptr && !thread->over_();
  };
  const uint64_t now = WallNs();
  if (std::ranges::all_of(threads_, waits)) {
    moving_since_ns_ = now;
    return true;
  }
  if (now <= moving_since_ns_ + kPatienceNs) return false;
  if (now > moving_since_ns_ + kRunnablePatienceNs) return true;
  return std::ranges::none_of(
      threads_, [&](const HostThread* thread) { return !waits(thread) && thread->IsRunnable(); });
}

void Hosts::AwaitQuiet() {
  std::unique_lock lock(mutex_);
  all_wait_.wait_for(lock, kLook);
}

HostThread::HostThread() : tid_(gettid()) {}

bool HostThread::IsRunnable() const {
  // "tid (name) state ...", where the name may contain anything.
  std::ifstream file("/proc/self/task/" + std::to_string(tid_) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && name_end + 2 < line.size() && line[name_end + 2] == 'R';
}

HostThread& HostThread::OfThread() {
  thread_local HostThread thread;
  return thread;
}

void HostThread::Join(const std::shared_ptr<Hosts>& hosts) {
  if (hosts_ == hosts) return;
  if (hosts_ != nullptr) {
    std::lock_guard lock(hosts_->mutex_);
    std::erase(hosts_->threads_, this);
    over_ = nullptr;
  }
  hosts_ = hosts;
  if (hosts_ == nullptr) return;
  std::lock_guard lock(hosts_->mutex_);
  hosts_->threads_.push_back(this);
}

void HostThread::GoOn(const std::shared_ptr<Hosts>& hosts) {
  Join(hosts);
  std::lock_guard lock(hosts->mutex_);
  hosts->moving_since_ns_ = WallNs();
  over_ = nullptr;
}

void HostThread::Wait(const std::shared_ptr<Hosts>& hosts, std::function<bool()> over) {
  Join(hosts);
  std::lock_guard lock(hosts->mutex_);
  over_ = std::move(over);
  const auto waits = [](const HostThread* thread) { return thread->over_ != nullptr; };
  if (std::ranges::all_of(hosts->threads_, waits)) hosts->all_wait_.notify_all();
}

}  // namespace octet::emulation
