// Pointers of git-lfs: short texts that a clone without git-lfs has in place of its large files.
#ifndef OCTET_KERNELS_MODEL_LFS_POINTER_H_
#define OCTET_KERNELS_MODEL_LFS_POINTER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octet {

// Returns kNotFound, with what to do, if the file `path`, which begins with `beginning`, is a
// pointer.
absl::Status CheckNoLfsPointer(absl::string_view beginning, absl::string_view path);

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_LFS_POINTER_H_
