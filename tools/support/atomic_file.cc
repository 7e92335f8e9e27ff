#include "tools/support/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

// Large enough that a full disk or an exhausted quota is noticed.
constexpr size_t kProbeBytes = 4096;

absl::Status FileError(int error, absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

// A path that cannot be written is an error of the user, whatever the reason; so is a full disk.
absl::Status WriteError(int error, absl::string_view path, absl::string_view what = "write") {
  return absl::InvalidArgumentError(FileError(error, what, path).message());
}

std::string FolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

// Returns the error number of the first call that failed, 0 if none did.
int WriteAll(int file, absl::Span<const absl::string_view> pieces) {
  for (absl::string_view piece : pieces) {
    while (!piece.empty()) {
      const ssize_t written = write(file, piece.data(), piece.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      piece.remove_prefix(static_cast<size_t>(written));
    }
  }
  return fsync(file) == 0 || errno == EINVAL ? 0 : errno;  // EINVAL: pipes and the like
}

std::string TemporaryFor(const std::string& path) {
  return absl::StrCat(path, ".", getpid(), ".tmp");
}

// Returns the error number of the first call that failed, 0 if none did. Part of the file may
// exist.
int WriteNew(const std::string& path, absl::Span<const absl::string_view> pieces) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return errno;
  int error = WriteAll(file, pieces);
  if (close(file) != 0 && error == 0) error = errno;
  return error;
}

// Returns the standard stream that `path` stands for, as /dev/stdout does if output goes to a file.
std::optional<int> StandardStream(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open_file = {};
    if (fstat(stream, &open_file) == 0 && open_file.st_dev == info.st_dev &&
        open_file.st_ino == info.st_ino) {
      return stream;
    }
  }
  return std::nullopt;
}

}  // namespace

bool WouldReplace(const std::string& path) {
  struct stat info = {};
  if (path.empty() || StandardStream(path)) return false;
  return stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces) {
  if (const std::optional<int> stream = StandardStream(path)) {
    // Opening the file again would write at its start.
    const int error = WriteAll(*stream, pieces);
    return error == 0 ? absl::OkStatus() : WriteError(error, path);
  }
  if (!WouldReplace(path)) {
    // Renaming would replace a device such as /dev/stdout by a file.
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return WriteError(errno, path);
    const int error = WriteAll(file, pieces);
    close(file);
    return error == 0 ? absl::OkStatus() : WriteError(error, path);
  }
  const std::string temporary = TemporaryFor(path);
  int error = WriteNew(temporary, pieces);
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(temporary.c_str());
  return WriteError(error, path);
}

absl::Status CheckCanWrite(const std::string& path) {
  struct stat info = {};
  const std::string folder = FolderOf(path);
  if (stat(folder.c_str(), &info) != 0) return WriteError(errno, path);
  if (!S_ISDIR(info.st_mode)) return WriteError(ENOTDIR, path);
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return WriteError(EISDIR, path);
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : WriteError(errno, path);
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) return WriteError(errno, path);
  return absl::OkStatus();
}

absl::Status ProbeWrite(const std::string& path) {
  OCTET_RETURN_IF_ERROR(CheckCanWrite(path));
  if (WouldReplace(path)) {
    const std::string zeros(kProbeBytes, '\0');
    const std::string temporary = TemporaryFor(path);
    const int error = WriteNew(temporary, {zeros});
    unlink(temporary.c_str());
    return error == 0 ? absl::OkStatus() : WriteError(error, path);
  }
  // The reader of a pipe would take closing it for the end.
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return WriteError(errno, path);
  if (!S_ISCHR(info.st_mode)) return absl::OkStatus();
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return WriteError(errno, path);
  const int error = write(file, "", 0) < 0 ? errno : 0;
  close(file);
  return error == 0 ? absl::OkStatus() : WriteError(error, path);
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return WriteError(error.value(), path, "make folder");
  if (access(path.c_str(), W_OK | X_OK) != 0) return WriteError(errno, path, "write into folder");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return FileError(error.value(), "read folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveFile(const std::string& path) {
  return unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus()
                                                      : WriteError(errno, path, "remove");
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError(errno, "read", path);
  std::string bytes;
  constexpr size_t kChunk = size_t{1} << 20;
  for (;;) {
    const size_t size = bytes.size();
    bytes.resize(size + kChunk);
    const ssize_t got = read(file, &bytes[size], kChunk);
    const int error = errno;
    bytes.resize(size + static_cast<size_t>(got > 0 ? got : 0));
    if (bytes.size() <= most_bytes && (got > 0 || (got < 0 && error == EINTR))) continue;
    close(file);
    if (bytes.size() > most_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot read ", path, ": it has more than the ", most_bytes, " bytes that it may have"));
    }
    if (got < 0) return FileError(error, "read", path);
    return bytes;
  }
}

}  // namespace octet
