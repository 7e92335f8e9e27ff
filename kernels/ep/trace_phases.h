// The phases of the strategies' trace tags (TraceTag::phase).
#ifndef OCTET_KERNELS_EP_TRACE_PHASES_H_
#define OCTET_KERNELS_EP_TRACE_PHASES_H_

#include "octet/trace.h"

namespace octet {

inline constexpr TracePhase kDispatchLayout = {"dispatch layout", TraceCall::kDispatch,
                                               TraceHalf::kOther};
inline constexpr TracePhase kDispatchSend = {"dispatch send", TraceCall::kDispatch,
                                             TraceHalf::kSend};
inline constexpr TracePhase kDispatchReceive = {"dispatch receive", TraceCall::kDispatch,
                                                TraceHalf::kReceive};
inline constexpr TracePhase kCombineSend = {"combine send", TraceCall::kCombine, TraceHalf::kSend};
inline constexpr TracePhase kCombineReceive = {"combine receive", TraceCall::kCombine,
                                               TraceHalf::kReceive};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_TRACE_PHASES_H_
