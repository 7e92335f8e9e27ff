#include "memory/poisoned_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "memory/poison.h"

namespace octet::emulation {
namespace {

// The bytes of the file that one write fills.
constexpr size_t kPiece = 64 << 10;
using Piece = std::array<uint16_t, kPiece / sizeof(uint16_t)>;

constexpr Piece MakePiece() {
  Piece piece = {};
  piece.fill(kPoison);
  return piece;
}
constexpr Piece kPoisonPiece = MakePiece();

void* Pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

PoisonedPages::PoisonedPages() : file_(memfd_create("octet-poison", MFD_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, kUnit) == 0) return;
  close(file_);
  file_ = -1;
}

PoisonedPages::~PoisonedPages() {
  if (file_ >= 0) close(file_);
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
    const size_t in_piece = filled_ % kPiece;  // not 0 after a partial write
    const char* from = reinterpret_cast<const char*>(kPoisonPiece.data()) + in_piece;
    const ssize_t written = pwrite(file_, from, kPiece - in_piece, static_cast<off_t>(filled_));
    if (written <= 0) return;
    filled_ += static_cast<size_t>(written);
  }
}

void PoisonedPages::Reset(uintptr_t begin, size_t bytes) {
  madvise(Pointer(begin), bytes, MADV_DONTNEED);
}

}  // namespace octet::emulation
