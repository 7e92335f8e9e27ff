#include "runtime/net/nccl_communicator.h"

#include <hip/hip_runtime.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/backoff.h"
#include "runtime/capture_need.h"
#include "runtime/gpu_status.h"
#include "runtime/mutex.h"
#include "runtime/nccl_library.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

// How long the destructor waits for communicators to be freed.
constexpr absl::Duration kLeave = absl::Seconds(5);

absl::Status Aborted() {
  return absl::CancelledError("the rank's communicator has been aborted after a failure");
}

}  // namespace

NcclCommunicator::~NcclCommunicator() {
  Abort();
  // The library must not be unloaded under a thread that is in it, at the end of the process.
  AwaitEndings(kLeave, true);
  MutexLock lock(&mutex_);
  for (Ending& ending : endings_) ending.thread.detach();
}

absl::Status NcclCommunicator::ToStatus(ncclResult_t result, absl::string_view call) const {
  // A communicator that is not blocking answers "in progress".
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  absl::Status status = library_.ToStatus(result, call);
  const char* const more = library_.get_last_error(nullptr);
  if (more == nullptr || *more == '\0') return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ": ", more));
}

absl::Status NcclCommunicator::AwaitReady(absl::string_view call, absl::FunctionRef<bool()> go_on) {
  Backoff backoff(true);
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (comm_ == nullptr) return Aborted();
      ncclResult_t result = ncclSuccess;
      OCTET_RETURN_IF_ERROR(
          ToStatus(library_.comm_get_async_error(comm_, &result), "ncclCommGetAsyncError"));
      if (result != ncclInProgress) return ToStatus(result, call);
    }
    if (!go_on()) return absl::CancelledError(absl::StrCat(call, " has not ended"));
    backoff.Wait();
  }
}

absl::Status NcclCommunicator::Connect(const Membership& membership,
                                       absl::FunctionRef<bool()> go_on) {
  {
    MutexLock lock(&mutex_);
    OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device_));
    need_ = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = kMaxBlocks;
    OCTET_RETURN_IF_ERROR(
        ToStatus(library_.comm_init_rank_config(&comm_, membership.num_nodes, membership.id,
                                                membership.node, &config),
                 "ncclCommInitRankConfig"));
  }
  return AwaitReady("ncclCommInitRankConfig", go_on);
}

absl::Status NcclCommunicator::EnqueueLocked(absl::Span<const NcclTransfer> transfers,
                                             hipStream_t stream) {
  if (comm_ == nullptr) return Aborted();
  OCTET_RETURN_IF_ERROR(ToStatus(library_.group_start(), "ncclGroupStart"));
  absl::Status status;
  for (const NcclTransfer& transfer : transfers) {
    if (transfer.send_bytes > 0) {
      status.Update(ToStatus(
          library_.send(transfer.send, transfer.send_bytes, ncclInt8, transfer.node, comm_, stream),
          "ncclSend"));
    }
    if (transfer.recv_bytes > 0) {
      status.Update(ToStatus(
          library_.recv(transfer.recv, transfer.recv_bytes, ncclInt8, transfer.node, comm_, stream),
          "ncclRecv"));
    }
  }
  status.Update(ToStatus(library_.group_end(), "ncclGroupEnd"));
  return status;
}

absl::Status NcclCommunicator::Enqueue(absl::Span<const NcclTransfer> transfers, hipStream_t stream,
                                       absl::FunctionRef<bool()> go_on) {
  {
    MutexLock lock(&mutex_);
    OCTET_RETURN_IF_ERROR(EnqueueLocked(transfers, stream));
  }
  return AwaitReady("ncclGroupEnd", go_on);
}

absl::Status NcclCommunicator::AsyncError() {
  MutexLock lock(&mutex_);
  if (comm_ == nullptr) return absl::OkStatus();
  ncclResult_t result = ncclSuccess;
  OCTET_RETURN_IF_ERROR(
      ToStatus(library_.comm_get_async_error(comm_, &result), "ncclCommGetAsyncError"));
  return ToStatus(result, "a send or receive");
}

void NcclCommunicator::Abort() {
  MutexLock lock(&mutex_);
  if (comm_ == nullptr) return;
  if (need_ != nullptr) need_->gone = true;
  Ending ending = {.thread = {},
                   .done = std::make_shared<std::atomic<bool>>(false),
                   .waits_for_graphs = need_ != nullptr};
  const auto abort = [&library = library_, comm = std::exchange(comm_, nullptr), device = device_,
                      done = ending.done] {
    // Nothing can report errors here.
    (void)hipSetDevice(device);
    (void)library.comm_abort(comm);
    *done = true;
  };
  // The standard library reports by exceptions only.
  try {
    ending.thread = std::thread(abort);
  } catch (const std::system_error&) {
    abort();
    return;
  }
  endings_.push_back(std::move(ending));
}

void NcclCommunicator::AwaitAborted(absl::Duration limit) { AwaitEndings(limit, false); }

void NcclCommunicator::AwaitEndings(absl::Duration limit, bool of_graphs) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Backoff backoff(false);
  while (true) {
    {
      MutexLock lock(&mutex_);
      bool all_done = true;
      for (size_t i = endings_.size(); i-- > 0;) {
        if (*endings_[i].done) {
          endings_[i].thread.join();
          endings_.erase(endings_.begin() + static_cast<ptrdiff_t>(i));
        } else if (of_graphs || !endings_[i].waits_for_graphs) {
          all_done = false;
        }
      }
      if (all_done || absl::FromChrono(Clock::now() - start) > limit) return;
    }
    backoff.Wait();
  }
}

std::shared_ptr<const CaptureNeed> NcclCommunicator::NeedOfCapture() {
  MutexLock lock(&mutex_);
  if (need_ == nullptr) {
    need_ = std::make_shared<CaptureNeed>();
    need_->what = "its communicator, which has been made anew after a failed Run";
    need_->gone = comm_ == nullptr;
  }
  return need_;
}

}  // namespace octet
