// Kernels that move rows by bulk_copy.h.
#ifndef OCTET_TESTS_PLATFORM_BULK_COPY_KERNELS_H_
#define OCTET_TESTS_PLATFORM_BULK_COPY_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

struct BulkCopyParams {
  const uint32_t* from;  // [rows][row_bytes]
  uint32_t* to;          // the same
  uint32_t* also;        // the same: each row is stored twice
  int rows;
  uint32_t row_bytes;
  uint32_t* done;  // [rows], set to 1 behind each row's release
};

// Every wave of `blocks` blocks of `waves` moves its rows through a ring of `slots` (2, 3 or 4).
hipError_t LaunchBulkCopy(const BulkCopyParams& params, int slots, int blocks, int waves,
                          int wave_size, hipStream_t stream);

// One wave writes each row itself, into global memory (`through_shared` false) or shared memory,
// and then sends it on by bulk copies: row i is filled with i + 1.
hipError_t LaunchBulkCopyOwn(const BulkCopyParams& params, bool through_shared, uint32_t* scratch,
                             int wave_size, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_BULK_COPY_KERNELS_H_
