// NCCL or RCCL, loaded when it is asked for: a binary made with its header runs without it.
#ifndef OCTET_TOOLS_CONTENDERS_NCCL_LIBRARY_H_
#define OCTET_TOOLS_CONTENDERS_NCCL_LIBRARY_H_

#include <rccl/rccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octet {

// What is called of it.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRank) comm_init_rank;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclGetErrorString) get_error_string;

  // Loads it on the first call, from where the dynamic linker looks (LD_LIBRARY_PATH). Later calls
  // give the same answer. kUnavailable with the linker's words.
  static absl::StatusOr<const NcclLibrary*> Load();

  // OK for ncclSuccess, else kInternal with the call and the library's words.
  absl::Status ToStatus(ncclResult_t result, absl::string_view call) const;
};

// "nccl" or "rccl".
absl::string_view NcclName();

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_NCCL_LIBRARY_H_
