// What EndCall (call_end.h) gets. Shared by host and device.
#ifndef OCTET_KERNELS_DEVICE_CALL_END_PARAMS_H_
#define OCTET_KERNELS_DEVICE_CALL_END_PARAMS_H_

#include <cstdint>

namespace octet {

struct CallEndParams {
  uint32_t* blocks_done;  // 0 between calls; null: a call's end is nothing special
  uint32_t* left_out;     // gets the ranks that the call goes without, a bit each; or null
  uint64_t* wait_ticks;   // [R] gets the longest waits added; or null
};

}  // namespace octet

#endif  // OCTET_KERNELS_DEVICE_CALL_END_PARAMS_H_
