// The exit codes of the programs.
#ifndef OCTET_TOOLS_SUPPORT_EXIT_CODE_H_
#define OCTET_TOOLS_SUPPORT_EXIT_CODE_H_

#include "absl/status/status.h"
#include "runtime/failure/failure.h"

namespace octet {

enum ExitCode : int {
  kExitOk = 0,
  kExitWrongResults = 1,
  kExitUsage = 2,
  kExitDevice = 3,
  kExitDeadline = 4,  // or a node that is lost
  kExitSkipped = 77,  // nothing that was asked for exists here
};

// Returns the exit code for an error of something that ran on GPUs. Arguments that turn out to be
// wrong there are still the user's errors; kDataLoss means that the results are wrong.
inline ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (absl::IsInvalidArgument(status)) return kExitUsage;
  if (absl::IsDataLoss(status)) return kExitWrongResults;
  if (absl::IsDeadlineExceeded(status) || IsLostNode(status)) return kExitDeadline;
  return kExitDevice;
}

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_EXIT_CODE_H_
