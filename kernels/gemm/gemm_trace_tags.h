// What the slices of a traced product mean.
#ifndef OCTET_KERNELS_GEMM_GEMM_TRACE_TAGS_H_
#define OCTET_KERNELS_GEMM_GEMM_TRACE_TAGS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/trace.h"

namespace octet {

// Tag i is that of device::GemmWork i. Details: the tile's expert, first row, rows, and first
// column of b.
absl::Span<const TraceTag> GemmTraceTags();

// Track i is device::GemmTrack i.
absl::Span<const absl::string_view> GemmTrackNames();

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_GEMM_TRACE_TAGS_H_
