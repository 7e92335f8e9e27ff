// Empties a GPU's caches before what is timed.
#ifndef OCTET_TOOLS_STEP_L2_FLUSH_H_
#define OCTET_TOOLS_STEP_L2_FLUSH_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/gpu.h"
#include "runtime/memory/device_memory.h"

namespace octet {

// Reads more memory than any cache holds. What the caches had written is then in memory, and what
// they hold is clean: a memset would leave them full of lines whose write-back shares the memory
// with whatever is timed next.
class L2Flush {
 public:
  // For the current GPU. An emulated one has no caches: it reads just enough to run the kernel.
  static absl::StatusOr<L2Flush> Create(bool emulated);

  absl::Status Enqueue(GpuStream stream) const;

 private:
  DeviceMemory memory_;  // zeros; the last vector is what the kernel would store to
};

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_L2_FLUSH_H_
