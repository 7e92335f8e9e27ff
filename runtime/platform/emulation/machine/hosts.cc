#include "machine/hosts.h"

#include <algorithm>
#include <utility>

#include "machine/machine.h"

namespace octet::emulation {
namespace {

// For threads that do not announce their waits.
constexpr uint64_t kPatienceNs = 100'000'000;

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
  return now > moving_since_ns_ + kPatienceNs;
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
}

}  // namespace octet::emulation
