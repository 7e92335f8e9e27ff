#include "runtime/failure/failure_log.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "octet/node_failure.h"
#include "runtime/base/mutex.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/failure.h"

namespace octet {
namespace {

// The lowest value wins; see FailureLog::Cause.
enum Order {
  kInputRefused,
  kFirstStatus,
  kWaitForSilentRank,
  kWaitForWaitingRank,
  kLaterStatus,
  kAborted,
  kCancelled,
};

}  // namespace

void FailureLog::AddStatus(int rank, const absl::Status& status, bool abort_seen) {
  MutexLock lock(&mutex_);
  const std::optional<NodeFailure> reported = FailureOf(status);
  Entry entry = {.rank = reported.has_value() ? reported->rank : rank,
                 .status = status,
                 .order = kLaterStatus};
  if (absl::IsCancelled(status)) {
    entry.order = kCancelled;
  } else if (absl::IsAborted(status)) {
    entry.order = kAborted;
  } else if (entries_.empty() && !abort_seen) {
    entry.order = kFirstStatus;
  }
  entries_.push_back(std::move(entry));
}

void FailureLog::AddRecord(int rank, const device::FailureRecord& record,
                           const absl::Status& status) {
  MutexLock lock(&mutex_);
  const bool input = record.kind == device::FailureKind::kInput;
  entries_.push_back({.rank = rank,
                      .status = status,
                      .order = input ? kInputRefused : kWaitForSilentRank,
                      .peer = input ? -1 : record.peer});
}

bool FailureLog::empty() const {
  MutexLock lock(&mutex_);
  return entries_.empty();
}

void FailureLog::Clear() {
  MutexLock lock(&mutex_);
  entries_.clear();
}

absl::Status FailureLog::Cause() const {
  MutexLock lock(&mutex_);
  if (entries_.empty()) return absl::OkStatus();
  std::vector<Entry> entries = entries_;
  std::set<int> waiting;
  for (const Entry& entry : entries) {
    if (entry.order == kWaitForSilentRank) waiting.insert(entry.rank);
  }
  for (Entry& entry : entries) {
    if (entry.order == kWaitForSilentRank && waiting.contains(entry.peer)) {
      entry.order = kWaitForWaitingRank;
    }
  }
  const Entry& cause =
      *std::min_element(entries.begin(), entries.end(),
                        [](const Entry& a, const Entry& b) { return a.order < b.order; });
  const Entry* lowest = &cause;
  for (const Entry& entry : entries) {
    if (entry.rank < lowest->rank && entry.status.code() == cause.status.code() &&
        entry.status.message() == cause.status.message()) {
      lowest = &entry;
    }
  }
  return WithRank(lowest->rank, lowest->status);
}

}  // namespace octet
