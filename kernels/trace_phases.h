// The phases of the strategies' trace tags (TraceTag::phase). Summaries parse them: the first word
// names the call, the last says whether the tag sends or receives.
#ifndef OCTET_KERNELS_TRACE_PHASES_H_
#define OCTET_KERNELS_TRACE_PHASES_H_

#include "absl/strings/string_view.h"

namespace octet {

inline constexpr absl::string_view kDispatchLayout = "dispatch layout";
inline constexpr absl::string_view kDispatchSend = "dispatch send";
inline constexpr absl::string_view kDispatchReceive = "dispatch receive";
inline constexpr absl::string_view kCombineSend = "combine send";
inline constexpr absl::string_view kCombineReceive = "combine receive";

}  // namespace octet

#endif  // OCTET_KERNELS_TRACE_PHASES_H_
