#include "runtime/failure_log.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure.h"
#include "runtime/mutex.h"

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

// Removes a leading "rank <digits>: ".
bool ConsumeRank(absl::string_view* message) {
  absl::string_view rest = *message;
  if (!absl::ConsumePrefix(&rest, "rank ")) return false;
  const size_t digits = rest.find_first_not_of("0123456789");
  if (digits == 0 || digits == absl::string_view::npos) return false;
  rest.remove_prefix(digits);
  if (!absl::ConsumePrefix(&rest, ": ")) return false;
  *message = rest;
  return true;
}

absl::string_view WithoutRank(const absl::Status& status) {
  absl::string_view message = status.message();
  ConsumeRank(&message);
  return message;
}

}  // namespace

absl::Status WithRank(int rank, const absl::Status& status) {
  absl::string_view message = status.message();
  if (status.ok() || ConsumeRank(&message)) return status;
  return WithMessage(status, absl::StrCat("rank ", rank, ": ", message));
}

void FailureLog::AddStatus(int rank, const absl::Status& status, bool abort_seen) {
  MutexLock lock(&mutex_);
  Entry entry = {.rank = rank, .status = WithRank(rank, status), .order = kLaterStatus};
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
                      .status = WithRank(rank, status),
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
        WithoutRank(entry.status) == WithoutRank(cause.status)) {
      lowest = &entry;
    }
  }
  return lowest->status;
}

}  // namespace octet
