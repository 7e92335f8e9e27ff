// One persistent thread per rank, asleep between tasks.
#ifndef OCTET_RUNTIME_NODE_RANK_THREADS_H_
#define OCTET_RUNTIME_NODE_RANK_THREADS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"

namespace octet {

class RankThreads {
 public:
  // Returns kResourceExhausted if the system cannot create more threads.
  static absl::StatusOr<std::unique_ptr<RankThreads>> Start(int num_ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls task(rank) on every rank's thread at once and returns when all have returned. Meanwhile
  // the calling thread calls `meanwhile` about ten times a second. Only one call may be in
  // progress; must not be called on a rank's thread.
  void Execute(absl::FunctionRef<void(int)> task, absl::FunctionRef<void()> meanwhile = [] {});

 private:
  RankThreads() = default;
  void Loop(int rank);
  // Waits briefly for the task to end; returns whether it has ended.
  bool HasEnded();

  std::vector<std::thread> threads_;
  Mutex mutex_;
  CondVar work_;
  CondVar done_;
  const absl::FunctionRef<void(int)>* task_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // Written with mutex_ held; GPU schedules read them without it.
  std::atomic<uint64_t> generation_ = 0;
  std::atomic<int> running_ = 0;
  std::atomic<bool> stop_ = false;
};

// Returns kFailedPrecondition on a rank's thread, of any node: `call` cannot be made inside a Run.
absl::Status CheckOutsideRun(absl::string_view call);

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_RANK_THREADS_H_
