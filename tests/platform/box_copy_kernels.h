// A kernel that copies boxes by box_copy.h.
#ifndef OCTET_TESTS_PLATFORM_BOX_COPY_KERNELS_H_
#define OCTET_TESTS_PLATFORM_BOX_COPY_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "runtime/platform/box_shape.h"

namespace octet {

// The beginnings of a round's two boxes in their matrices.
struct BoxPlace {
  int wide_byte;
  int wide_row;
  int narrow_byte;
  int narrow_row;
};

struct BoxCopy {
  device::BoxShape wide;    // boxes of 128 bytes a row
  device::BoxShape narrow;  // of 16
  int waves;                // of the one block
  int rounds;               // of each wave
  const BoxPlace* places;   // [waves][rounds]
  // [waves][rounds][BoxBytes(wide) + BoxBytes(narrow)], as the boxes lie in shared memory.
  char* out;
  uint32_t* early;  // [waves][rounds], the first word of a round's wide box before it is waited for
};

constexpr size_t BoxBytes(const device::BoxShape& shape) {
  return static_cast<size_t>(shape.box_rows) * static_cast<size_t>(shape.box_row_bytes);
}

// Every wave has two rounds under way, each with a barrier of its own.
hipError_t LaunchBoxCopy(const BoxCopy& copy, int wave_size, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_BOX_COPY_KERNELS_H_
