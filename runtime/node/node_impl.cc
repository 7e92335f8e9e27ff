#include "runtime/node/node_impl.h"
#include "runtime/node/capture.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gpu_schedule.h"
#include "misuse.h"
#include "octet/node_failure.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/failure/flag_table.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

constexpr uint32_t kNodeBarrierSite = 0;

// See NodeOptions::timeout.
constexpr int kBarrierTimeouts = 2;
constexpr int kDrainTimeouts = 6;
constexpr int kDrainTimeoutsAfterFailure = 2;
constexpr absl::Duration kDrainExtra = absl::Seconds(5);

// Reading the clock costs more than a poll.
constexpr uint64_t kPollsPerClockCheck = 16;

// A kernel stores its record before it raises the abort word, but another kernel may have raised
// the word while the record is still being written.
constexpr int kRecordPolls = 1000;

}  // namespace

Node::Impl::Impl(Topology topology, NodeOptions options, bool adopted)
    : topology_(std::move(topology)),
      options_(std::move(options)),
      adopted_(adopted),
      ranks_(options_.num_ranks),
      own_streams_(options_.num_ranks, nullptr),
      barrier_(options_.num_ranks, kBarrierTimeouts * options_.timeout,
               [this](uint32_t caller) { return TextOf(caller); }),
      cores_(Backoff::CoresFor(options_.num_ranks)),
      gpu_control_(options_.num_ranks, nullptr),
      streams_(options_.num_ranks),
      calls_(options_.num_ranks),
      held_(options_.num_ranks) {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    ranks_[rank].rank_ = rank;
    ranks_[rank].device_ = topology_.gpus[rank].device;
  }
}

void Node::Impl::Stop() {
  if (threads_ == nullptr) return;
  if (ReadyToFree()) threads_->Execute([this](int rank) { StopRank(ranks_[rank]); });
  threads_.reset();
}

absl::Status Node::Impl::Start(Node& node) {
  OCTET_ASSIGN_OR_RETURN(threads_, RankThreads::Start(num_ranks()));
  std::vector<absl::Status> statuses(num_ranks());
  threads_->Execute([&](int rank) {
    ranks_[rank].node_ = &node;
    statuses[rank] = StartRank(ranks_[rank]);
  });
  for (int rank = 0; rank < num_ranks(); ++rank) {
    OCTET_RETURN_IF_ERROR(WithRank(rank, statuses[rank]));
  }
  return DrainAll();
}

absl::Status Node::Impl::StartRank(Rank& rank) {
  const GpuInfo& gpu = topology_.gpus[rank.rank_];
  if (options_.pin_threads && !gpu.near_cpus.empty()) {
    OCTET_RETURN_IF_ERROR(PinCallingThread(gpu.near_cpus));
  }
  OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(rank.device_));
  OCTET_RETURN_IF_ERROR(EnablePeers(rank));
  OCTET_RETURN_IF_GPU_ERROR(hipStreamCreateWithFlags(&rank.stream_, hipStreamNonBlocking));
  own_streams_[rank.rank_] = rank.stream_;
  OCTET_RETURN_IF_GPU_ERROR(hipEventCreateWithFlags(&rank.drained_, hipEventDisableTiming));
  OCTET_RETURN_IF_GPU_ERROR(device::LoadNodeBarrier());

  void* memory = nullptr;
  OCTET_RETURN_IF_GPU_ERROR(
      hipExtMallocWithFlags(&memory, sizeof(GpuControl), hipDeviceMallocUncached));
  gpu_control_[rank.rank_] = static_cast<GpuControl*>(memory);
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(memory, 0, sizeof(GpuControl), rank.stream_));

  if (rank.rank_ == 0) {
    OCTET_RETURN_IF_GPU_ERROR(
        hipHostMalloc(&memory, sizeof(HostControl),
                      hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent));
    host_control_ = static_cast<HostControl*>(memory);
    ResetHostControl();
  }
  return absl::OkStatus();
}

absl::Status Node::Impl::EnablePeers(const Rank& rank) {
  for (const Rank& peer : ranks_) {
    if (peer.device_ == rank.device_) continue;
    const hipError_t error = hipDeviceEnablePeerAccess(peer.device_, 0);
    if (error == hipErrorPeerAccessAlreadyEnabled) {
      (void)hipGetLastError();  // the next launch would return it
    } else if (error != hipSuccess) {
      const absl::Status status = GpuStatus(error, "hipDeviceEnablePeerAccess");
      return absl::FailedPreconditionError(absl::StrCat("GPU ", rank.device_,
                                                        " cannot access the memory of GPU ",
                                                        peer.device_, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

void Node::Impl::StopRank(Rank& rank) {
  // Nothing can report errors here.
  if (rank.drained_ != nullptr) (void)hipEventDestroy(rank.drained_);
  if (rank.stream_ != nullptr) (void)hipStreamDestroy(rank.stream_);
  if (gpu_control_[rank.rank_] != nullptr) (void)hipFree(gpu_control_[rank.rank_]);
  if (rank.rank_ == 0 && host_control_ != nullptr) (void)hipHostFree(host_control_);
}

// ---- running

absl::Status Node::Impl::Run(absl::FunctionRef<absl::Status(Rank&)> body) {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("Node::Run"));
  if (adopted_) OCTET_RETURN_IF_ERROR(Settle());
  if (running_.exchange(true)) {
    return absl::FailedPreconditionError(
        "Node::Run called while another Run is in progress; one thread at a time may run a node");
  }
  absl::Status status = WhyUnusable();
  if (status.ok()) {
    BeginRun();
    RunPhase(body);
    status = EndRun();
  }
  ForgetGraphs();
  ++completed_runs_;
  running_ = false;
  return status;
}

absl::Status Node::Impl::WhyUnusable() const {
  if (threads_ != nullptr) return broken_;
  return absl::FailedPreconditionError(
      "the node has been destroyed; what was made on it can only be destroyed, too");
}

void Node::Impl::BeginRun() {
  failed_at_ = Time();
  streams_.assign(streams_.size(), {});
  {
    MutexLock lock(&held_mutex_);
    held_.assign(ranks_.size(), "");
  }
  run_clients_ = Clients();
  BeginPhase();
  SetReleasable(true);
}

absl::Status Node::Impl::EndRun() {
  SetReleasable(false);
  CollectRecords();
  absl::Status status = log_.Cause();
  if (status.ok()) return status;
  Notice(status);
  absl::Status recovered = DrainAll();
  UseOwnStreams();
  if (absl::IsDeadlineExceeded(status)) {
    status = WithMessage(status, absl::StrCat(status.message(), DescribeWaits(recovered.ok())));
  }
  if (recovered.ok()) recovered = Recover();
  if (!recovered.ok()) {
    broken_ = absl::FailedPreconditionError(absl::StrCat(
        "the node has not recovered from '", FirstLine(status), "': ", FirstLine(recovered),
        "; it takes no more calls. After an error of a GPU a process has to start anew"));
  }
  return status;
}

void Node::Impl::ForgetGraphs() {
  if (stuck_) return;  // some may still run
  for (Rank& rank : ranks_) rank.launched_graphs_.clear();
}

void Node::Impl::BeginPhase() {
  barrier_.Reset();
  log_.Clear();
  host_failed_ = false;
  released_ = false;
}

void Node::Impl::SetReleasable(bool releasable) {
  MutexLock lock(&release_mutex_);
  releasable_ = releasable;
}

void Node::Impl::Release(const absl::Status& status) {
  MutexLock lock(&release_mutex_);
  if (!releasable_ || released_) return;
  // The order is that of Fail. A thread of the Run tells on_failure: NoticeAbort.
  log_.AddStatus(kNoRank, WithMessage(status, status.message()), AbortRaised());
  release_status_ = WithMessage(status, status.message());
  released_ = true;
  std::atomic_ref<uint32_t>(host_control_->abort_word).store(1, std::memory_order_release);
  barrier_.Abort(WithMessage(status, status.message()));
}

void Node::Impl::RunPhase(absl::FunctionRef<absl::Status(Rank&)> body) {
  const auto run_rank = [&](int r) {
    Rank& rank = ranks_[r];
    if (const absl::Status status = RunBody(rank, body); !status.ok()) Fail(r, status);
    barrier_.Leave(r);
    if (const absl::Status status = Drain(rank); !status.ok()) {
      Fail(r, status);
    }
    NoticeAbort();
  };
  // Notices a GPU that stops the node, whatever the ranks' threads are doing.
  threads_->Execute(run_rank, [this] { NoticeAbort(); });
}

absl::Status Node::Impl::RunBody(Rank& rank, absl::FunctionRef<absl::Status(Rank&)> body) {
  const platform::BodyWatch watch([this, &rank](const std::string& misuse) {
    Fail(rank.rank_, absl::FailedPreconditionError(misuse));
  });
  absl::Status status = body(rank);
  if (!IsCapturing(rank.stream_)) return status.ok() ? CheckComplete(rank) : status;
  AbandonCapture(rank.stream_);
  if (!status.ok()) return status;
  return absl::FailedPreconditionError(
      "the body has begun a capture of the rank's stream and not ended it; Graph::Capture does "
      "both");
}

absl::Status Node::Impl::CheckComplete(const Rank& rank) const {
  // Between Calls an object may have been destroyed.
  for (const auto& [id, client] : adopted_ ? Clients() : run_clients_) {
    const absl::Status status = client->CheckComplete(rank);
    if (status.ok()) continue;
    const std::string name = NameOf(id);
    return name.empty() ? status
                        : WithMessage(status, absl::StrCat("'", name, "': ", status.message()));
  }
  return absl::OkStatus();
}

void Node::Impl::Fail(int rank, const absl::Status& status) {
  if (released_) NoticeAbort();  // what this rank reports is a consequence
  // Must precede the release of the other ranks: what they report then is a consequence.
  const bool first = IsFirstNoticed();
  log_.AddStatus(rank, status, AbortRaised() && !host_failed_);
  host_failed_ = true;
  std::atomic_ref<uint32_t>(host_control_->abort_word).store(1, std::memory_order_release);
  barrier_.Abort(
      absl::CancelledError(absl::StrCat("released, since ", WithRank(rank, status).message())));
  if (first) Tell(WithRank(rank, status));
}

bool Node::Impl::IsFirstNoticed() {
  Time none = Time();
  return failed_at_.compare_exchange_strong(none, std::chrono::steady_clock::now());
}

void Node::Impl::Notice(const absl::Status& status) {
  if (IsFirstNoticed()) Tell(status);
}

void Node::Impl::Tell(const absl::Status& status) const {
  if (options_.on_failure != nullptr) options_.on_failure(status);
}

void Node::Impl::NoticeAbort() {
  // After a failure on the host, the thread that raised the abort word reports the reason.
  if (failed_at_.load() == Time() && AbortRaised() && !host_failed_) Notice(WhyStopped());
}

bool Node::Impl::MayStillWait(const Rank& rank, Time start) {
  NoticeAbort();
  StreamState& stream = streams_[rank.rank_];
  const Time failed_at = failed_at_;
  const Time now = std::chrono::steady_clock::now();
  if (failed_at == Time()) {
    return absl::FromChrono(now - start) <= kDrainTimeouts * options_.timeout + kDrainExtra;
  }
  stream.busy = absl::FromChrono(now - failed_at);
  // While it lasts; the report of the Run comes later.
  if (stream.busy >= kBusyToTell) WhatHolds(rank.rank_);
  if (absl::FromChrono(now - std::max(start, failed_at)) >
      kDrainTimeoutsAfterFailure * options_.timeout + kDrainExtra) {
    stream.gave_up = true;
  }
  return !stream.gave_up;
}

absl::Status Node::Impl::Drain(Rank& rank, hipStream_t stream) {
  OCTET_RETURN_IF_GPU_ERROR(hipEventRecord(rank.drained_, stream));
  const Time start = std::chrono::steady_clock::now();
  Backoff backoff(cores_);
  hipError_t error;
  while ((error = hipEventQuery(rank.drained_)) == hipErrorNotReady) {
    backoff.Wait();
    if (backoff.polls() % kPollsPerClockCheck != 0 || MayStillWait(rank, start)) continue;
    const std::string held = WhatHolds(rank.rank_);
    return absl::DeadlineExceededError(
        absl::StrCat("the stream is not idle after ",
                     WaitText(absl::FromChrono(std::chrono::steady_clock::now() - start)),
                     held.empty() ? "" : ": ", held));
  }
  (void)hipGetLastError();  // "not ready" counts as an error on some platforms
  return GpuStatus(error, "work on the rank's stream");
}

absl::Status Node::Impl::Synchronize(Rank& rank) {
  if (IsCapturing(rank.stream_)) {
    return absl::FailedPreconditionError(
        "Synchronize while the rank's stream is captured: nothing is executed before the graph is");
  }
  OCTET_RETURN_IF_ERROR(Drain(rank));
  platform::KernelsHaveEnded();
  return AbortRaised() ? WhyStopped() : absl::OkStatus();
}

absl::Status Node::Impl::WaitUntil(Rank& rank, absl::FunctionRef<bool()> done,
                                   absl::string_view what) {
  const Time start = std::chrono::steady_clock::now();
  Backoff backoff(cores_);
  while (!done()) {
    if (hipStreamQuery(rank.stream_) != hipErrorNotReady) return Synchronize(rank);
    (void)hipGetLastError();  // "not ready" counts as an error on some platforms
    backoff.Wait();
    if (backoff.polls() % kPollsPerClockCheck != 0) continue;
    const bool may_wait = MayStillWait(rank, start);
    if (AbortRaised()) return WhyStopped();
    if (may_wait) continue;
    const absl::Duration waited = absl::FromChrono(std::chrono::steady_clock::now() - start);
    return WithFailure(
        {.kind = NodeFailure::Kind::kWait,
         .rank = rank.rank_,
         .waited = waited,
         .phase = "wait for the stream",
         .flag = std::string(what)},
        absl::DeadlineExceededError(absl::StrCat("waited ", WaitText(waited), " for ", what,
                                                 "; its stream is still busy")));
  }
  return absl::OkStatus();
}

absl::Status Node::Impl::WhyStopped() const {
  if (released_) return WithMessage(release_status_, release_status_.message());
  for (int poll = 0; poll < kRecordPolls; ++poll) {
    for (int rank = 0; rank < num_ranks(); ++rank) {
      device::FailureRecord record;
      if (ReadRecord(rank, device::FailureKind::kDeadline, &record)) {
        return DescribeRecord(rank, record);
      }
    }
    if (host_failed_) return absl::CancelledError("released, since another rank has failed");
    std::this_thread::yield();
  }
  return absl::CancelledError("released, since a kernel of another rank has failed");
}

void Node::Impl::CollectRecords() {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    device::FailureRecord record;
    if (ReadRecord(rank, device::FailureKind::kDeadline, &record)) {
      log_.AddRecord(rank, record, DescribeRecord(rank, record));
    }
  }
}

absl::Status Node::Impl::DrainAll() {
  std::vector<absl::Status> drained(num_ranks());
  threads_->Execute([&](int rank) { drained[rank] = Drain(ranks_[rank]); });
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (absl::IsDeadlineExceeded(drained[rank])) stuck_ = true;
  }
  for (int rank = 0; rank < num_ranks(); ++rank) {
    OCTET_RETURN_IF_ERROR(WithRank(rank, drained[rank]));
  }
  return absl::OkStatus();
}

bool Node::Impl::ReadyToFree() {
  if (adopted_) SettleToFree();
  // Objects destroyed inside a Run are freed without this check: the threads have other work.
  if (threads_ != nullptr && !stuck_ && !running_.exchange(true)) {
    threads_->Execute([this](int r) {
      Rank& rank = ranks_[r];
      if (rank.drained_ == nullptr) return;  // never started
      // Other errors do not matter: freeing does not wait for a GPU that has failed.
      const hipStream_t null_stream = nullptr;
      if (absl::IsDeadlineExceeded(Drain(rank)) ||
          absl::IsDeadlineExceeded(Drain(rank, null_stream))) {
        stuck_ = true;
      }
    });
    running_ = false;
  }
  if (!stuck_) return true;
  if (!told_unfreed_.exchange(true)) {
    Tell(absl::DeadlineExceededError(
        "work on a GPU does not end: what the node and the objects made on it have on the GPUs is "
        "left unfreed, since freeing would wait for that work"));
  }
  return false;
}

absl::Status Node::Impl::Recover() {
  ResetHostControl();
  BeginPhase();
  const auto clients = Clients();
  RunPhase([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemsetAsync(gpu_control_[rank.rank_], 0, sizeof(GpuControl), rank.stream_));
    OCTET_RETURN_IF_ERROR(Synchronize(rank));
    OCTET_RETURN_IF_ERROR(rank.Barrier("recovery"));
    for (const auto& [id, client] : clients) OCTET_RETURN_IF_ERROR(client->Recover(rank));
    return absl::OkStatus();
  });
  CollectRecords();
  return log_.Cause();
}

// ---- clients

std::vector<std::pair<uint32_t, NodeClient*>> Node::Impl::Clients() const {
  MutexLock lock(&clients_mutex_);
  return {clients_.begin(), clients_.end()};
}

uint32_t Node::Impl::AddClient(NodeClient* client, std::string name) {
  const uint32_t id = AddCaller(std::move(name));
  MutexLock lock(&clients_mutex_);
  clients_[id] = client;
  return id;
}

void Node::Impl::RemoveClient(uint32_t id) {
  RemoveCaller(id);
  MutexLock lock(&clients_mutex_);
  clients_.erase(id);
}

uint32_t Node::Impl::AddCaller(std::string name) {
  // A report is read line by line.
  absl::c_replace_if(name, absl::ascii_iscntrl, ' ');
  MutexLock lock(&clients_mutex_);
  const uint32_t id = next_client_++;
  if (!name.empty()) names_[id] = std::move(name);
  return id;
}

void Node::Impl::RemoveCaller(uint32_t id) {
  MutexLock lock(&clients_mutex_);
  names_.erase(id);
}

std::string Node::Impl::NameOf(uint32_t caller) const {
  MutexLock lock(&clients_mutex_);
  const auto it = names_.find(caller);
  return it != names_.end() ? it->second : "";
}

std::string Node::Impl::TextOf(uint32_t caller) const {
  const std::string name = NameOf(caller);
  return name.empty() ? "" : absl::StrCat("'", name, "'");
}

absl::Status Node::Impl::EnqueueNodeBarrier(Rank& rank) {
  device::NodeBarrierParams params = {};
  params.rank = rank.rank_;
  params.num_ranks = num_ranks();
  params.port = failure_port(rank.rank_, kNodeClient);
  params.site = kNodeBarrierSite;
  for (int peer = 0; peer < num_ranks(); ++peer) params.state[peer] = &gpu_control_[peer]->barrier;
  return rank.LaunchWaiting(
      [&] { return OCTET_GPU(device::LaunchNodeBarrier(params, rank.stream_)); });
}

}  // namespace octet
