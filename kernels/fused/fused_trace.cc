#include "kernels/fused/fused_trace.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/ep/ep_calls.h"
#include "kernels/gemm/gemm_trace_tags.h"
#include "octet/grouped_gemm.h"
#include "octet/routed_experts.h"

namespace octet::fused {

static_assert(RoutedExperts::kTraceTracks == kFirstProductTrack + GroupedGemm::kTraceTracks);

uint32_t FirstProductTag(const ExpertParallel& ep) {
  return static_cast<uint32_t>(ep.calls().trace_tags().size());
}

std::vector<TraceTag> FusedTraceTags(const ExpertParallel& ep) {
  const absl::Span<const TraceTag> of_ep = ep.calls().trace_tags();
  const absl::Span<const TraceTag> of_products = GemmTraceTags();
  std::vector<TraceTag> tags(of_ep.begin(), of_ep.end());
  tags.insert(tags.end(), of_products.begin(), of_products.end());
  return tags;
}

absl::Span<const absl::string_view> FusedTrackNames() {
  static const auto kNames = [] {
    std::array<absl::string_view, RoutedExperts::kTraceTracks> names = {"dispatch, combine"};
    std::copy(GemmTrackNames().begin(), GemmTrackNames().end(),
              names.begin() + ptrdiff_t{kFirstProductTrack});
    return names;
  }();
  return kNames;
}

}  // namespace octet::fused
