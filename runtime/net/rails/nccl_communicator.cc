#include "runtime/net/rails/nccl_communicator.h"

#include <hip/hip_runtime.h>

#include <atomic>
#include <chrono>
#include <functional>
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
#include "runtime/base/backoff.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/net/call_thread.h"
#include "runtime/net/rails/nccl_library.h"
#include "runtime/node/capture_need.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

// How long the destructor waits for communicators to be freed.
constexpr absl::Duration kLeave = absl::Seconds(5);
// How long an abort lets a call of another thread end by itself.
constexpr absl::Duration kEndOfCall = absl::Milliseconds(200);

absl::Status Aborted() {
  return absl::CancelledError("the rank's communicator has been aborted after a failure");
}

absl::Status ToStatus(const NcclLibrary& library, ncclResult_t result, absl::string_view call) {
  // A communicator that is not blocking answers "in progress".
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  absl::Status status = library.ToStatus(result, call);
  const char* const more = library.get_last_error(nullptr);
  if (more == nullptr || *more == '\0') return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ": ", more));
}

absl::Status EnqueueOn(const NcclLibrary& library, ncclComm_t comm,
                       absl::Span<const NcclTransfer> transfers, hipStream_t stream) {
  OCTET_RETURN_IF_ERROR(ToStatus(library, library.group_start(), "ncclGroupStart"));
  absl::Status status;
  for (const NcclTransfer& transfer : transfers) {
    if (transfer.send_bytes > 0) {
      status.Update(ToStatus(
          library,
          library.send(transfer.send, transfer.send_bytes, ncclInt8, transfer.node, comm, stream),
          "ncclSend"));
    }
    if (transfer.recv_bytes > 0) {
      status.Update(ToStatus(
          library,
          library.recv(transfer.recv, transfer.recv_bytes, ncclInt8, transfer.node, comm, stream),
          "ncclRecv"));
    }
  }
  status.Update(ToStatus(library, library.group_end(), "ncclGroupEnd"));
  return status;
}

}  // namespace

NcclCommunicator::~NcclCommunicator() {
  Abort();
  // The library must not be unloaded under a thread that is in it, at the end of the process.
  AwaitEndings(kLeave, true);
  MutexLock lock(&mutex_);
  for (Ending& ending : endings_) ending.thread.detach();
}

absl::Status NcclCommunicator::AwaitReady(absl::string_view call, absl::FunctionRef<bool()> go_on) {
  Backoff backoff(Backoff::Cores::kShared);
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (comms_.first == nullptr) return Aborted();
      ncclResult_t result = ncclSuccess;
      OCTET_RETURN_IF_ERROR(ToStatus(library_, library_.comm_get_async_error(comms_.first, &result),
                                     "ncclCommGetAsyncError"));
      if (result != ncclInProgress) return ToStatus(library_, result, call);
    }
    if (!go_on()) return absl::CancelledError(absl::StrCat(call, " has not ended"));
    backoff.Wait();
  }
}

absl::Status NcclCommunicator::Connect(const Membership& membership,
                                       absl::FunctionRef<bool()> go_on) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = kMaxBlocks;
  {
    MutexLock lock(&mutex_);
    OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device_));
    need_ = nullptr;
    calling_ = std::make_shared<std::atomic<bool>>(false);
    OCTET_RETURN_IF_ERROR(PrepareEnding());
    OCTET_RETURN_IF_ERROR(
        ToStatus(library_,
                 library_.comm_init_rank_config(&comms_.first, membership.num_nodes, membership.id,
                                                membership.node, &config),
                 "ncclCommInitRankConfig"));
  }
  OCTET_RETURN_IF_ERROR(AwaitReady("ncclCommInitRankConfig", go_on));
  if (library_.comm_split == nullptr) return absl::OkStatus();
  config.blocking = 1;
  {
    MutexLock lock(&mutex_);
    if (comms_.first == nullptr) return Aborted();
    OCTET_RETURN_IF_ERROR(ToStatus(
        library_, library_.comm_split(comms_.first, 0, membership.node, &comms_.blocking, &config),
        "ncclCommSplit"));
  }
  return AwaitReady("ncclCommSplit", go_on);
}

absl::Status NcclCommunicator::Enqueue(absl::Span<const NcclTransfer> transfers, hipStream_t stream,
                                       absl::FunctionRef<bool()> go_on) {
  std::function<absl::Status()> call;
  std::shared_ptr<std::atomic<bool>> calling;
  {
    MutexLock lock(&mutex_);
    if (comms_.first == nullptr) return Aborted();
    if (comms_.blocking == nullptr) {
      OCTET_RETURN_IF_ERROR(EnqueueOn(library_, comms_.first, transfers, stream));
    } else {
      calling = calling_;
      *calling = true;
      call = [&library = library_, comm = comms_.blocking, device = device_, stream, calling,
              owned = std::vector<NcclTransfer>(transfers.begin(), transfers.end())] {
        absl::Status status = OCTET_GPU(hipSetDevice(device));
        if (status.ok()) status = EnqueueOn(library, comm, owned, stream);
        *calling = false;
        return status;
      };
    }
  }
  if (call == nullptr) return AwaitReady("ncclGroupEnd", go_on);
  absl::Status status = calls_.Make(std::move(call), go_on);
  if (absl::IsResourceExhausted(status)) *calling = false;  // there is no thread
  if (absl::IsCancelled(status)) return absl::CancelledError("ncclGroupEnd has not ended");
  return status;
}

absl::Status NcclCommunicator::AsyncError() {
  MutexLock lock(&mutex_);
  if (comms_.first == nullptr) return absl::OkStatus();
  ncclResult_t result = ncclSuccess;
  OCTET_RETURN_IF_ERROR(ToStatus(library_, library_.comm_get_async_error(comms_.used(), &result),
                                 "ncclCommGetAsyncError"));
  return ToStatus(library_, result, "a send or receive");
}

absl::Status NcclCommunicator::PrepareEnding() {
  if (prepared_.has_value()) return absl::OkStatus();
  Ending ending = {.thread = {}, .order = std::make_shared<EndingOrder>()};
  // The standard library reports by exceptions only.
  try {
    ending.thread = std::thread([&library = library_, device = device_, calling = calling_,
                                 order = ending.order] { End(library, device, *calling, *order); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to abort a communicator: ", error.what()));
  }
  prepared_ = std::move(ending);
  return absl::OkStatus();
}

void NcclCommunicator::End(const NcclLibrary& library, int device, const std::atomic<bool>& calling,
                           EndingOrder& order) {
  Comms comms;
  {
    MutexLock lock(&order.mutex);
    while (!order.given) order.changed.Wait(&order.mutex);
    comms = order.comms;
  }
  const Clock::time_point start = Clock::now();
  Backoff backoff(Backoff::Cores::kShared);
  while (calling && absl::FromChrono(Clock::now() - start) < kEndOfCall) backoff.Wait();
  // Nothing can report errors here.
  (void)hipSetDevice(device);
  if (comms.blocking != nullptr) (void)library.comm_abort(comms.blocking);
  if (comms.first != nullptr) (void)library.comm_abort(comms.first);
  order.done = true;
}

void NcclCommunicator::Abort() {
  MutexLock lock(&mutex_);
  if (!prepared_.has_value()) return;
  if (need_ != nullptr) need_->gone = true;
  Ending ending = *std::move(prepared_);
  prepared_.reset();
  ending.waits_for_graphs = need_ != nullptr;
  {
    MutexLock order_lock(&ending.order->mutex);
    ending.order->comms = std::exchange(comms_, Comms());
    ending.order->given = true;
    ending.order->changed.Signal();
  }
  endings_.push_back(std::move(ending));
}

void NcclCommunicator::AwaitAborted(absl::Duration limit) { AwaitEndings(limit, false); }

void NcclCommunicator::AwaitEndings(absl::Duration limit, bool of_graphs) {
  const Clock::time_point start = Clock::now();
  Backoff backoff(Backoff::Cores::kShared);
  while (true) {
    {
      MutexLock lock(&mutex_);
      bool all_done = true;
      for (size_t i = endings_.size(); i-- > 0;) {
        Ending& ending = endings_[i];
        if (ending.order->done) {
          ending.thread.join();
          endings_.erase(endings_.begin() + static_cast<ptrdiff_t>(i));
        } else if (!ending.given_up && (of_graphs || !ending.waits_for_graphs)) {
          all_done = false;
          ending.given_up = absl::FromChrono(Clock::now() - start) > limit;
        }
      }
      if (all_done) return;
    }
    backoff.Wait();
  }
}

std::shared_ptr<const CaptureNeed> NcclCommunicator::NeedOfCapture() {
  MutexLock lock(&mutex_);
  if (need_ == nullptr) {
    need_ = std::make_shared<CaptureNeed>();
    need_->what = "its communicator, which has been made anew after a failed Run";
    need_->gone = comms_.first == nullptr;
  }
  return need_;
}

}  // namespace octet
