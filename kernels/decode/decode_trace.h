// The tags of traces of layers in one launch.
#ifndef OCTET_KERNELS_DECODE_DECODE_TRACE_H_
#define OCTET_KERNELS_DECODE_DECODE_TRACE_H_

#include "absl/types/span.h"
#include "octet/trace.h"

namespace octet {

// By TraceSlice::tag, in the order of a call. Every block records each of them once a call, but for
// those of the sum over ranks, which one rank does not have.
absl::Span<const TraceTag> DecodeTraceTags();

}  // namespace octet

#endif  // OCTET_KERNELS_DECODE_DECODE_TRACE_H_
