#include "kernels/model/lfs_pointer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace octet {

absl::Status CheckNoLfsPointer(absl::string_view beginning, absl::string_view path) {
  if (!absl::StartsWith(beginning, "version https://git-lfs.github.com/spec/")) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(
      absl::StrCat(path, " is a pointer of git-lfs, and not the file itself; install git-lfs and ",
                   "run `git lfs pull` in its folder"));
}

}  // namespace octet
