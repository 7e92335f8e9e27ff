// What went wrong during one Run, on all ranks, and which of it was the cause.
#ifndef OCTET_RUNTIME_FAILURE_LOG_H_
#define OCTET_RUNTIME_FAILURE_LOG_H_

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/device/failure_record.h"
#include "runtime/mutex.h"

namespace octet {

// `status` with "rank r: " before its message, unless a rank is named there already.
absl::Status WithRank(int rank, const absl::Status& status);

// Thread-safe.
class FailureLog {
 public:
  // A rank's body or stream ended with `status` (not ok). `abort_seen`: a GPU had told the node to
  // stop by then, so that this may be a consequence.
  void AddStatus(int rank, const absl::Status& status, bool abort_seen);

  // A kernel of `rank` wrote `record`; `status` is what it means.
  void AddRecord(int rank, const device::FailureRecord& record, const absl::Status& status);

  bool empty() const;
  void Clear();

  // The status to give back, with its rank in front:
  //   1. input refused by a kernel;
  //   2. the first status, if it came before any GPU stopped the node;
  //   3. an expired wait, one for a rank that did not wait for anybody itself if there is such;
  //   4. any other status, kAborted and kCancelled (a rank released by others) last.
  // Where several ranks say the same, the lowest one's. OK if nothing was added.
  absl::Status Cause() const;

 private:
  struct Entry {
    int rank = 0;
    absl::Status status;
    int order = 0;  // as in Cause: 1 comes before 4
    int peer = -1;  // whom an expired wait waited for
  };
  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octet

#endif  // OCTET_RUNTIME_FAILURE_LOG_H_
