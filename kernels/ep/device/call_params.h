// Parameters of the kernels of every strategy. Shared by host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_CALL_PARAMS_H_
#define OCTET_KERNELS_EP_DEVICE_CALL_PARAMS_H_

#include <cstdint>

#include "kernels/ep/device/load_counters.h"
#include "kernels/ep/device/row_arrivals.h"
#include "kernels/ep/device/row_departures.h"
#include "octet/peers.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/trace_event.h"

namespace octet {

struct CallParams {
  device::PeerBases peers;  // moved to the strategy's part of the heap
  device::FailurePort failure;
  device::TraceBuffer trace;
  LoadCounters loads;
};

// Read by the senders of a dispatch.
struct DispatchTensors {
  const void* x;              // [T] rows
  const int32_t* topk_idx;    // [T][K]
  const float* topk_weights;  // [T][K] or nullptr: all 1
  int num_tokens;
  RowArrivals arrivals;  // of the rows of x
};

struct CombineTensors {
  // Read by the senders.
  const void* expert_out;     // [rows][H]
  const float* expert_scale;  // [L] or nullptr
  // Read and written by the receivers.
  const int32_t* topk_idx;    // [T][K]
  const float* topk_weights;  // [T][K] or nullptr: all 1
  const void* bias;           // [H] or nullptr
  int num_tokens;
  void* y;                   // [T][H]
  RowDepartures departures;  // of the rows of y
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_CALL_PARAMS_H_
