#include "runtime/node/rank_threads.h"

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gpu_schedule.h"
#include "runtime/base/mutex.h"

namespace octet {
namespace {

thread_local bool on_rank_thread = false;

constexpr absl::Duration kMeanwhile = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<RankThreads>> RankThreads::Start(int num_ranks) {
  auto threads = std::unique_ptr<RankThreads>(new RankThreads());
  for (int rank = 0; rank < num_ranks; ++rank) {
    try {
      threads->threads_.emplace_back(&RankThreads::Loop, threads.get(), rank);
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("starting the thread of rank ", rank, ": ", error.what()));
    }
  }
  return threads;
}

RankThreads::~RankThreads() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    work_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::Execute(absl::FunctionRef<void(int)> task, absl::FunctionRef<void()> meanwhile) {
  {
    MutexLock lock(&mutex_);
    task_ = &task;
    running_ = static_cast<int>(threads_.size());
    ++generation_;
    work_.SignalAll();
  }
  const platform::HostWait wait([this] { return running_ == 0; });
  while (!HasEnded()) meanwhile();
}

bool RankThreads::HasEnded() {
  MutexLock lock(&mutex_);
  if (running_ > 0) done_.WaitFor(&mutex_, kMeanwhile);
  if (running_ > 0) return false;
  task_ = nullptr;
  return true;
}

void RankThreads::Loop(int rank) {
  on_rank_thread = true;
  pthread_setname_np(pthread_self(), absl::StrCat("octet-rank-", rank).c_str());
  uint64_t seen = 0;
  while (true) {
    const absl::FunctionRef<void(int)>* task;
    {
      const auto is_next = [this, seen] { return stop_ || generation_ != seen; };
      const platform::HostWait wait(is_next);
      MutexLock lock(&mutex_);
      while (!is_next()) work_.Wait(&mutex_);
      if (stop_) return;
      seen = generation_;
      task = task_;
    }
    (*task)(rank);
    MutexLock lock(&mutex_);
    if (--running_ == 0) done_.Signal();
  }
}

absl::Status CheckOutsideRun(absl::string_view call) {
  if (!on_rank_thread) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      call, " called from inside the body of a Run; call it before the Run or after it"));
}

}  // namespace octet
