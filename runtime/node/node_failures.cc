// Node::Impl reports failures: who waited for what, and who is still busy.
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gpu_schedule.h"
#include "misuse.h"
#include "octet/node_failure.h"
#include "runtime/base/mutex.h"
#include "runtime/failure/failure.h"
#include "runtime/failure/flag_table.h"
#include "runtime/node/node_impl.h"

namespace octet {

// ---- what each rank waited for

std::string Node::Impl::DescribeWaits(bool idle) {
  std::vector<device::FailureRecord> waits(num_ranks());
  bool expired = false;
  bool busy = false;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    busy = busy || !BusyText(rank).empty();
    if (ReadRecord(rank, device::FailureKind::kDeadline, &waits[rank])) {
      expired = expired || waits[rank].kind == device::FailureKind::kDeadline;
    } else {
      ReadRecord(rank, device::FailureKind::kReleased, &waits[rank]);
    }
  }
  if (!expired && !busy) return "";

  std::string text = "\nall ranks:";
  for (int rank = 0; rank < num_ranks(); ++rank) {
    absl::StrAppend(&text, "\n  ", WaitLine(rank, waits[rank]), BusyText(rank));
  }
  if (!idle) return text;
  for (const auto& [id, client] : Clients()) {
    std::vector<device::FailureRecord> theirs = waits;
    bool any = false;
    for (device::FailureRecord& wait : theirs) {
      if (wait.client != id || wait.kind == device::FailureKind::kInput) wait = {};
      any = any || wait.kind != device::FailureKind::kNone;
    }
    if (any) absl::StrAppend(&text, TablesOf(*client, theirs));
  }
  return text;
}

std::string Node::Impl::WaitLine(int rank, const device::FailureRecord& wait) const {
  if (wait.kind == device::FailureKind::kNone) return absl::StrCat("rank ", rank, ": no wait");
  return std::string(FirstLine(DescribeRecord(rank, wait)));
}

std::string Node::Impl::BusyText(int rank) const {
  const StreamState& stream = streams_[rank];
  if (stream.busy < kBusyToTell) return "";
  const std::string held = WhatHolds(rank);
  return absl::StrCat(
      "; its stream ",
      stream.gave_up ? "is still busy with other work " : "was busy with other work until ",
      WaitText(stream.busy), " after the failure", held.empty() ? "" : ": ", held);
}

std::string Node::Impl::TablesOf(NodeClient& client,
                                 const std::vector<device::FailureRecord>& waits) {
  std::vector<absl::Status> copied(num_ranks());
  threads_->Execute([&](int rank) {
    copied[rank] = client.CopyFlags(ranks_[rank]);
    if (const absl::Status drained = Drain(ranks_[rank]); copied[rank].ok()) copied[rank] = drained;
  });
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (copied[rank].ok()) continue;
    return absl::StrCat("\nits flags cannot be read: ", FirstLine(WithRank(rank, copied[rank])));
  }
  std::string text;
  std::string name;  // of the first of these waits
  for (const device::FailureRecord& wait : waits) {
    if (name.empty() && wait.kind != device::FailureKind::kNone) name = NameOf(wait.caller);
  }
  for (FlagTable& table : client.FlagTables(waits)) {
    if (!name.empty()) table.title = absl::StrCat("'", name, "': ", table.title);
    absl::StrAppend(&text, FlagTableText(table));
  }
  return text;
}

// ---- failure records

device::FailurePort Node::Impl::failure_port(int rank, uint32_t client) const {
  return {.abort_word = &host_control_->abort_word,
          .records = host_control_->records[rank].record,
          .claimed = gpu_control_[rank]->claimed,
          .deadline_ticks = DeviceTicksOf(options_.timeout),
          .client = client,
          .rank = rank,
          .caller = client};
}

bool Node::Impl::AbortRaised() const {
  if (host_control_ == nullptr) return false;  // Start has failed
  return std::atomic_ref<uint32_t>(host_control_->abort_word).load(std::memory_order_acquire) != 0;
}

bool Node::Impl::ReadRecord(int rank, device::FailureKind kind,
                            device::FailureRecord* record) const {
  device::FailureRecord& theirs = host_control_->records[rank].record[device::RecordIndex(kind)];
  if (std::atomic_ref<uint32_t>(theirs.complete).load(std::memory_order_acquire) == 0) return false;
  *record = theirs;
  return true;
}

void Node::Impl::ResetHostControl() {
  // Threads that watch for a stop, like that of rails over NCCL, may look at the word meanwhile.
  std::atomic_ref<uint32_t>(host_control_->abort_word).store(0, std::memory_order_release);
  absl::c_fill(host_control_->records, HostControl::Records());
}

absl::Status Node::Impl::DescribeRecord(int rank, const device::FailureRecord& record) const {
  absl::Status status = WithObject(WordedByClient(rank, record), NameOf(record.caller));
  if (record.kind == device::FailureKind::kInput || record.peer < 0 || record.peer >= num_ranks()) {
    return status;
  }
  const std::string held = WhatHolds(record.peer);
  return held.empty() ? status : WithMessage(status, absl::StrCat(status.message(), "; ", held));
}

std::string Node::Impl::WhatHolds(int rank) const {
  std::string now = platform::WhatHolds(ranks_[rank].device_);
  MutexLock lock(&held_mutex_);
  if (!now.empty()) held_[rank] = std::move(now);
  return held_[rank];
}

absl::Status Node::Impl::WordedByClient(int rank, const device::FailureRecord& record) const {
  if (record.client == kNodeClient) {
    return DeadlineStatus(RecordedFailure(rank, record, "node barrier", "arrival at rank"));
  }
  MutexLock lock(&clients_mutex_);
  if (const auto it = clients_.find(record.client); it != clients_.end()) {
    return it->second->Describe(rank, record);
  }
  const std::string phase = absl::StrCat("site ", record.site, " of client ", record.client);
  if (record.kind == device::FailureKind::kInput) {
    return WithFailure(
        RecordedFailure(rank, record, phase, "input"),
        absl::InvalidArgumentError(absl::StrCat(phase, " refused element ", record.index,
                                                " of its input: ", record.seen)));
  }
  return DeadlineStatus(RecordedFailure(rank, record, phase, "flag"));
}

}  // namespace octet
