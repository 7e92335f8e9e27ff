// The parameters of EndCall (call_end.h). Shared by host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_CALL_END_PARAMS_H_
#define OCTET_KERNELS_EP_DEVICE_CALL_END_PARAMS_H_

#include <cstdint>

namespace octet {

struct CallEndParams {
  uint32_t* blocks_done;  // 0 between calls; null: ranks are never masked
  uint32_t* left_out;     // receives the ranks that the call excludes, a bit each
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_CALL_END_PARAMS_H_
