// NCCL or RCCL, loaded at run time: a binary built with its header runs without the library.
#ifndef OCTET_RUNTIME_NET_RAILS_NCCL_LIBRARY_H_
#define OCTET_RUNTIME_NET_RAILS_NCCL_LIBRARY_H_

#include <rccl/rccl.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octet {

// The functions that are used.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRank) comm_init_rank;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&ncclCommSplit) comm_split;  // null: before version 2.18
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;

  // Loads the library on the first call, from where the dynamic linker looks (LD_LIBRARY_PATH).
  // Later calls give the same answer. Returns kUnavailable with the linker's message if it cannot
  // be loaded.
  static absl::StatusOr<const NcclLibrary*> Load();

  // Returns the library's version: "2.28.9".
  absl::StatusOr<std::string> Version() const;

  // Returns OK for ncclSuccess, else kInternal with the call and the library's message.
  absl::Status ToStatus(ncclResult_t result, absl::string_view call) const;
};

// Returns "nccl" or "rccl".
absl::string_view NcclName();

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_RAILS_NCCL_LIBRARY_H_
