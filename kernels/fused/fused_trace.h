// What the slices of traced RoutedExperts mean: the strategy's kernels record on track 0, products
// on the tracks after it, whether they have kernels of their own or not.
#ifndef OCTET_KERNELS_FUSED_FUSED_TRACE_H_
#define OCTET_KERNELS_FUSED_FUSED_TRACE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/expert_parallel.h"
#include "octet/trace.h"

namespace octet::fused {

inline constexpr int kFirstProductTrack = 1;

// The tags of `ep`'s kernels, then those of products.
uint32_t FirstProductTag(const ExpertParallel& ep);
std::vector<TraceTag> FusedTraceTags(const ExpertParallel& ep);

// Of all RoutedExperts::kTraceTracks tracks.
absl::Span<const absl::string_view> FusedTrackNames();

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_FUSED_TRACE_H_
