// The boxes of rows that box_copy.h copies. Shared by all platforms.
#ifndef OCTET_RUNTIME_PLATFORM_BOX_SHAPE_H_
#define OCTET_RUNTIME_PLATFORM_BOX_SHAPE_H_

#include <cstddef>
#include <cstdint>

namespace octet::device {

// A matrix of packed rows, and its boxes: some bytes of some rows that follow each other.
struct BoxShape {
  const void* data;  // at a multiple of 16 bytes
  int64_t rows;
  int row_bytes;      // a multiple of 16
  int box_rows;       // at most 256
  int box_row_bytes;  // 128 or 16
};

inline constexpr int kBoxChunkBytes = 16;

// Returns the offset of 16 bytes of a row in a box of 128 bytes a row, which begins at a multiple
// of kBoxAlignment bytes. Rows that differ by four have the first and the last four chunks in other
// banks.
constexpr int BoxOffset(int row, int chunk) {
  constexpr int kChunks = 8;  // of a row
  return (row * kChunks + (chunk ^ row % kChunks)) * kBoxChunkBytes;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_BOX_SHAPE_H_
