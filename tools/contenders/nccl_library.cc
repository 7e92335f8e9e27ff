#include "tools/contenders/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace octet {
namespace {

absl::StatusOr<const NcclLibrary*> LoadOnce() {
  // Sends and receives do not use NVLink's multicast: keep the library from setting it up.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1);
  void* handle = dlopen(OCTET_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(dlerror());
  auto* const library = new NcclLibrary();  // stays loaded
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) absl::StrAppend(&missing, missing.empty() ? "" : ", ", name);
  };
  find(library->get_version, "ncclGetVersion");
  find(library->get_unique_id, "ncclGetUniqueId");
  find(library->comm_init_rank, "ncclCommInitRank");
  find(library->comm_abort, "ncclCommAbort");
  find(library->group_start, "ncclGroupStart");
  find(library->group_end, "ncclGroupEnd");
  find(library->send, "ncclSend");
  find(library->recv, "ncclRecv");
  find(library->get_error_string, "ncclGetErrorString");
  if (!missing.empty()) {
    return absl::UnavailableError(absl::StrCat(OCTET_NCCL_LIBRARY, " lacks ", missing));
  }
  return library;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> NcclLibrary::Load() {
  static const auto* const kLibrary = new absl::StatusOr<const NcclLibrary*>(LoadOnce());
  return *kLibrary;
}

absl::Status NcclLibrary::ToStatus(ncclResult_t result, absl::string_view call) const {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", get_error_string(result)));
}

absl::string_view NcclName() { return OCTET_NCCL_NAME; }

}  // namespace octet
