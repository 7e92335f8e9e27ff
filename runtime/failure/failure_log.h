// Collects the failures of all ranks during one Run and selects the cause.
#ifndef OCTET_RUNTIME_FAILURE_FAILURE_LOG_H_
#define OCTET_RUNTIME_FAILURE_FAILURE_LOG_H_

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/device/failure_record.h"

namespace octet {

// Thread-safe.
class FailureLog {
 public:
  // Adds `status` (not OK), with which a rank's body or stream ended, or with which the node was
  // told to stop from outside (kNoRank, runtime/failure/failure.h). `abort_seen`: a GPU had
  // already told the node to stop, so this may be a consequence.
  void AddStatus(int rank, const absl::Status& status, bool abort_seen);

  // Adds a record that a kernel of `rank` wrote; `status` is its meaning.
  void AddRecord(int rank, const device::FailureRecord& record, const absl::Status& status);

  bool empty() const;
  void Clear();

  // Returns the status to report, prefixed with its rank:
  //   1. input refused by a kernel;
  //   2. the first status, if it came before any GPU stopped the node;
  //   3. an expired wait, preferably one for a rank that did not itself wait for any rank;
  //   4. any other status, kAborted and kCancelled (ranks released by a failure elsewhere) last.
  // If several ranks report the same, returns the lowest rank's. OK if nothing was added.
  absl::Status Cause() const;

 private:
  struct Entry {
    int rank = 0;         // the rank that failed
    absl::Status status;  // as it was added
    int order = 0;        // as in Cause: 1 comes before 4
    int peer = -1;        // the rank that an expired wait waited for
  };
  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octet

#endif  // OCTET_RUNTIME_FAILURE_FAILURE_LOG_H_
