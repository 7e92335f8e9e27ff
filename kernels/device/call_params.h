// What every kernel of every strategy gets. Shared by host and device.
#ifndef OCTET_KERNELS_DEVICE_CALL_PARAMS_H_
#define OCTET_KERNELS_DEVICE_CALL_PARAMS_H_

#include "runtime/device/failure_record.h"
#include "runtime/device/peers.h"
#include "runtime/device/trace_event.h"

namespace octet {

struct CallParams {
  device::PeerBases peers;  // moved to the strategy's part of the heap
  device::FailurePort failure;
  device::TraceBuffer trace;
};

}  // namespace octet

#endif  // OCTET_KERNELS_DEVICE_CALL_PARAMS_H_
