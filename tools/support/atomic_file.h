// Files that are either there as a whole or not at all.
#ifndef OCTET_TOOLS_SUPPORT_ATOMIC_FILE_H_
#define OCTET_TOOLS_SUPPORT_ATOMIC_FILE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

// What cannot be written is kInvalidArgument, with the path and the reason: the path is the user's.

// Writes the pieces one after the other to a temporary file beside `path` and renames it. On an
// error, which names the path and the reason, nothing is left behind and an older file stays.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces);

// Whether that would put a file at `path`, whatever is there now; false where it would write into
// what is there: a device, a pipe, the file that standard output goes to. False for an empty path.
bool WouldReplace(const std::string& path);

// OK if a file could be made at `path` now: its folder is there and open to us, and `path` itself
// is no folder. To be asked before work whose result would be lost.
absl::Status CheckCanWrite(const std::string& path);

// Finds out by trying: writes a little to a temporary file beside `path` and removes it, or, where
// `path` is a device, opens it and writes nothing. Finds what CheckCanWrite cannot see: a
// full disk, /dev/full. For programs that are about to spend minutes on the result.
absl::Status ProbeWrite(const std::string& path);

// Makes the folder and its parents where they are missing; OK if it is there and open to us.
absl::Status MakeFolder(const std::string& path);

// The names of what lies in the folder, in order.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// OK if there is no such file, too.
absl::Status RemoveFile(const std::string& path);

// The whole file. kNotFound if there is none; kInvalidArgument if there are more than `most_bytes`
// in it, which need not be known before (/dev/zero has no end); other errors name the reason too.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_ATOMIC_FILE_H_
