#include "memory/poisoned_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "memory/poison.h"

namespace octet::emulation {
namespace {

// The bytes of the file that one write fills.
constexpr size_t kWritten = 64 << 10;
using Piece = std::array<uint16_t, kWritten / sizeof(uint16_t)>;

constexpr Piece MakePiece() {
  Piece piece = {};
  piece.fill(kPoison);
  return piece;
}
constexpr Piece kPoisonPiece = MakePiece();

}  // namespace

PoisonedPages::PoisonedPages()
    : file_(memfd_create("octet-poison", MFD_CLOEXEC)),
      page_map_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, kUnit) == 0) return;
  close(file_);
  file_ = -1;
}

PoisonedPages::~PoisonedPages() {
  if (file_ >= 0) close(file_);
  if (page_map_ >= 0) close(page_map_);
}

bool PoisonedPages::Map(uintptr_t begin, size_t bytes) const {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  if (file_ < 0) return mprotect(Pointer(begin), bytes, kAccess) == 0;
  for (size_t done = 0; done < bytes; done += kUnit) {
    constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    if (mmap(Pointer(begin + done), kUnit, kAccess, kFlags, file_, 0) == MAP_FAILED) return false;
  }
  return true;
}

void PoisonedPages::Fill(uintptr_t begin, size_t bytes) {
  if (file_ < 0) return;
  const size_t first = begin % kUnit;
  const size_t end = first + bytes < kUnit ? first + bytes : kUnit;
  while (filled_ < end) {
    const size_t in_piece = filled_ % kWritten;  // not 0 after a partial write
    const char* from = reinterpret_cast<const char*>(kPoisonPiece.data()) + in_piece;
    const ssize_t written = pwrite(file_, from, kWritten - in_piece, static_cast<off_t>(filled_));
    if (written <= 0) return;
    filled_ += static_cast<size_t>(written);
  }
}

bool PoisonedPages::Overwrite(uintptr_t begin, size_t bytes) const {
  if (file_ < 0 || page_map_ < 0 || bytes > kMostKept) return false;
  // Bits of an entry of the page map (Linux, Documentation/admin-guide/mm/pagemap.rst).
  constexpr uint64_t kInMemoryOrSwapped = uint64_t{3} << 62;
  constexpr uint64_t kOfTheFile = uint64_t{1} << 61;  // nobody has written to it
  std::array<uint64_t, kMostKept / kPage> entries;
  const size_t pages = bytes / kPage;
  const auto wanted = static_cast<ssize_t>(pages * sizeof(uint64_t));
  const auto from = static_cast<off_t>(begin / kPage * sizeof(uint64_t));
  if (pread(page_map_, entries.data(), static_cast<size_t>(wanted), from) != wanted) return false;
  for (size_t page = 0; page < pages; ++page) {
    if ((entries[page] & kInMemoryOrSwapped) == 0 || (entries[page] & kOfTheFile) != 0) continue;
    std::memcpy(Pointer(begin + page * kPage), kPoisonPiece.data(), kPage);
  }
  return true;
}

void PoisonedPages::Reset(uintptr_t begin, size_t bytes) const {
  if (!Overwrite(begin, bytes)) madvise(Pointer(begin), bytes, MADV_DONTNEED);
}

}  // namespace octet::emulation
