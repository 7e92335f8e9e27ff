#include "kernels/gemm/gemm_trace_tags.h"

#include <iterator>

#include "runtime/platform/gemm_call.h"

namespace octet {
namespace {

constexpr TraceTag TagOf(absl::string_view name, bool waits) {
  return {.name = name,
          .phase = {.name = "gemm"},
          .detail = {.name = "expert"},
          .waits = waits,
          .more_details = {"row", "rows", "column"}};
}

}  // namespace

absl::Span<const TraceTag> GemmTraceTags() {
  static constexpr TraceTag kTags[] = {TagOf("wait", true), TagOf("multiply", false),
                                       TagOf("epilogue", false), TagOf("load", false)};
  static_assert(static_cast<int>(device::GemmWork::kLoad) + 1 == std::size(kTags));
  return kTags;
}

absl::Span<const absl::string_view> GemmTrackNames() {
  static constexpr absl::string_view kNames[] = {"multiply", "load"};
  static_assert(std::size(kNames) == device::kGemmTracks);
  return kNames;
}

}  // namespace octet
