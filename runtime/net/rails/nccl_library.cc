#include "runtime/net/rails/nccl_library.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/shared_library.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

absl::StatusOr<const NcclLibrary*> LoadOnce() {
  // Sends and receives do not use NVLink's multicast: keep the library from setting it up.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1);
  OCTET_ASSIGN_OR_RETURN(SharedLibrary file, SharedLibrary::Open({OCTET_NCCL_LIBRARY}));
  auto* const library = new NcclLibrary();
  file.Require(library->get_version, "ncclGetVersion");
  file.Require(library->get_unique_id, "ncclGetUniqueId");
  file.Require(library->comm_init_rank, "ncclCommInitRank");
  file.Require(library->comm_init_rank_config, "ncclCommInitRankConfig");
  file.Find(library->comm_split, "ncclCommSplit");
  file.Require(library->comm_get_async_error, "ncclCommGetAsyncError");
  file.Require(library->comm_abort, "ncclCommAbort");
  file.Require(library->group_start, "ncclGroupStart");
  file.Require(library->group_end, "ncclGroupEnd");
  file.Require(library->send, "ncclSend");
  file.Require(library->recv, "ncclRecv");
  file.Require(library->get_error_string, "ncclGetErrorString");
  file.Require(library->get_last_error, "ncclGetLastError");
  OCTET_RETURN_IF_ERROR(file.CheckComplete());
  return library;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> NcclLibrary::Load() {
  static const auto* const kLibrary = new absl::StatusOr<const NcclLibrary*>(LoadOnce());
  return *kLibrary;
}

absl::StatusOr<std::string> NcclLibrary::Version() const {
  int code = 0;
  OCTET_RETURN_IF_ERROR(ToStatus(get_version(&code), "ncclGetVersion"));
  // The form of the number since 2.9.
  return absl::StrCat(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

absl::Status NcclLibrary::ToStatus(ncclResult_t result, absl::string_view call) const {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", get_error_string(result)));
}

absl::string_view NcclName() { return OCTET_NCCL_NAME; }

}  // namespace octet
