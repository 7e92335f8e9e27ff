// Writes files completely or not at all.
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

// Functions that cannot write return kInvalidArgument with the path and the reason, since the path
// is the user's.

// Writes the pieces one after the other to a temporary file beside `path` and renames it. On an
// error, nothing is left behind and an older file stays.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces);

// Returns whether WriteFileAtomically would put a new file at `path`, perhaps in place of an old
// one. Returns false if it would write into an existing device, pipe or the file that standard
// output goes to, or if the path is empty.
bool WouldReplace(const std::string& path);

// Returns OK if a file could be created at `path` now: its folder exists and is accessible, and
// `path` itself is not a folder. Call it before work whose result would be lost.
absl::Status CheckCanWrite(const std::string& path);

// Tries to write: writes a little to a temporary file beside `path` and removes it or, if `path` is
// a device, opens it and writes nothing. Finds what CheckCanWrite cannot: a full disk, /dev/full.
// For programs that are about to spend minutes on the result.
absl::Status ProbeWrite(const std::string& path);

// Creates the folder and its parents if they are missing; returns OK if the folder exists and is
// accessible.
absl::Status MakeFolder(const std::string& path);

// Returns the names of the folder's entries, in order.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// Returns OK also if there is no such file.
absl::Status RemoveFile(const std::string& path);

// Returns the whole file. Errors: kNotFound if there is none; kInvalidArgument if it holds more
// than `most_bytes`, which need not be known before (/dev/zero has no end). Other errors name the
// reason too.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_ATOMIC_FILE_H_
