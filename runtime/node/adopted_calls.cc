// Node::Impl lets threads of the caller's make the ranks' calls, on streams of the caller's.
#include <hip/hip_runtime.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "misuse.h"
#include "octet/node.h"
#include "octet/node_failure.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/capture.h"
#include "runtime/node/node_impl.h"

namespace octet {
namespace {

constexpr int kNone = -1;

// The rank whose call this thread is in, of any node.
thread_local int rank_of_thread = kNone;

absl::Status WithAdvice(const absl::Status& status) {
  return WithMessage(
      status, absl::StrCat(FirstLine(status), "; Node::Settle waits for the ranks and recovers"));
}

}  // namespace

// Ends a call, whichever way it is left.
struct Node::Impl::CallOf {
  CallOf(Impl& called, int called_rank) : impl(called), rank(called_rank) {
    rank_of_thread = rank;
    (void)hipGetDevice(&device_before);
  }
  ~CallOf() {
    (void)hipSetDevice(device_before);
    rank_of_thread = kNone;
    impl.EndCall(rank);
  }
  CallOf(const CallOf&) = delete;
  CallOf& operator=(const CallOf&) = delete;

  Impl& impl;
  const int rank;
  int device_before = 0;
};

absl::Status Node::Impl::Call(int rank, GpuStream stream,
                              absl::FunctionRef<absl::Status(Rank&)> body) {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("Node::Call"));
  if (rank_of_thread != kNone) {
    return absl::FailedPreconditionError(absl::StrCat(
        "Node::Call of rank ", rank, " on a thread that is in a call of rank ", rank_of_thread,
        ": ranks wait for each other on the host, so that two on one thread would wait for ever; "
        "give each rank a thread of its own"));
  }
  OCTET_RETURN_IF_ERROR(BeginCall(rank, stream));
  const CallOf call(*this, rank);
  Rank& of = ranks_[rank];
  absl::Status status = OCTET_GPU(hipSetDevice(of.device_));
  if (status.ok()) {
    const platform::BodyWatch watch([this, rank](const std::string& misuse) {
      Fail(rank, absl::FailedPreconditionError(misuse));
    });
    status = body(of);
  }
  if (status.ok()) return status;
  status = Explained(status);
  Fail(rank, status);
  return status;
}

absl::Status Node::Impl::BeginCall(int rank, GpuStream stream) {
  MutexLock lock(&calls_mutex_);
  if (!adopted_) {
    return absl::FailedPreconditionError(
        "Node::Call on a node of Node::Create, whose ranks have threads of their own: make it with "
        "Node::Adopt, or use Run");
  }
  if (rank < 0 || rank >= num_ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is none of this node, which has ", num_ranks()));
  }
  CallsOfRank& calls = calls_[rank];
  if (calls.in_call) {
    return absl::FailedPreconditionError(
        absl::StrCat("Node::Call of rank ", rank,
                     ", which is in a call on another thread; a rank makes one call at a time"));
  }
  if (!unreported_.ok()) return WithAdvice(unreported_);
  if (!calling_) {
    if (running_.exchange(true)) {
      return absl::FailedPreconditionError(
          "Node::Call during a Run, or while an object is made; wait for that");
    }
    if (absl::Status status = WhyUnusable(); !status.ok()) {
      running_ = false;
      return status;
    }
    BeginRun();
    calling_ = true;
  } else if (AbortRaised()) {
    NoticeAbort();
    return WithAdvice(WhyStopped());
  }
  calls = {.in_call = true, .called = true, .stream = stream};
  ranks_[rank].stream_ = stream;
  return absl::OkStatus();
}

void Node::Impl::EndCall(int rank) {
  MutexLock lock(&calls_mutex_);
  calls_[rank].in_call = false;
  ranks_[rank].stream_ = own_streams_[rank];
}

absl::Status Node::Impl::Explained(const absl::Status& status) {
  const std::optional<NodeFailure> failure = FailureOf(status);
  if (!failure.has_value() || failure->peer < 0 || failure->peer >= num_ranks() ||
      !absl::StartsWith(failure->phase, "host barrier")) {
    return status;
  }
  MutexLock lock(&calls_mutex_);
  if (calls_[failure->peer].in_call) return status;
  return WithMessage(
      status, absl::StrCat(status.message(), "; no thread is in a call of rank ", failure->peer,
                           ": ranks wait for each other on the host, so each needs a thread of "
                           "its own"));
}

absl::Status Node::Impl::CheckSettles() {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (calls_[rank].in_call) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " is in a call; Node::Settle comes after it"));
    }
    if (calls_[rank].called && IsCapturing(calls_[rank].stream)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the stream of rank ", rank, " is being captured; Node::Settle comes after that"));
    }
  }
  return absl::OkStatus();
}

void Node::Impl::UseCallersStreams() {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (calls_[rank].called) ranks_[rank].stream_ = calls_[rank].stream;
  }
}

void Node::Impl::UseOwnStreams() {
  for (int rank = 0; rank < num_ranks(); ++rank) ranks_[rank].stream_ = own_streams_[rank];
}

absl::Status Node::Impl::Settle() {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("Node::Settle"));
  MutexLock lock(&calls_mutex_);
  if (!adopted_) {
    return absl::FailedPreconditionError("Node::Settle on a node of Node::Create");
  }
  if (!unreported_.ok()) {
    const absl::Status status = unreported_;
    unreported_ = absl::OkStatus();
    return status;
  }
  if (!calling_) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(CheckSettles());
  UseCallersStreams();
  threads_->Execute(
      [this](int r) {
        Rank& rank = ranks_[r];
        if (const absl::Status status = CheckComplete(rank); !status.ok()) Fail(r, status);
        barrier_.Leave(r);
        if (const absl::Status status = Drain(rank); !status.ok()) Fail(r, status);
        NoticeAbort();
      },
      [this] { NoticeAbort(); });
  const absl::Status status = EndRun();
  UseOwnStreams();
  ForgetGraphs();
  calls_.assign(calls_.size(), {});
  calling_ = false;
  ++completed_runs_;
  running_ = false;
  return status;
}

void Node::Impl::SettleToFree() {
  {
    MutexLock lock(&calls_mutex_);
    if (!calling_ || !CheckSettles().ok()) return;
  }
  const absl::Status status = Settle();
  MutexLock lock(&calls_mutex_);
  if (unreported_.ok()) unreported_ = status;
}

}  // namespace octet
