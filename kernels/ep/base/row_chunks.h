// Chunks in which the rows of a rank come from other nodes and return to them. Host only.
#ifndef OCTET_KERNELS_EP_BASE_ROW_CHUNKS_H_
#define OCTET_KERNELS_EP_BASE_ROW_CHUNKS_H_

#include "kernels/ep/device/row_arrivals.h"
#include "kernels/ep/device/row_departures.h"

namespace octet {

struct RowChunks {
  RowArrivals arrivals;      // of the rows of x, in a dispatch
  RowDepartures departures;  // of the rows of y, in a combine
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_ROW_CHUNKS_H_
