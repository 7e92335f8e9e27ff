#include "kernels/decode/decode_trace.h"

namespace octet {

absl::Span<const TraceTag> DecodeTraceTags() {
  static constexpr TraceTag kTags[] = {
      {.name = "exchange", .phase = {.name = "exchange"}},
      {.name = "logits", .phase = {.name = "router"}},
      {.name = "logits barrier", .phase = {.name = "router"}, .waits = true},
      {.name = "top-k", .phase = {.name = "router"}},
      {.name = "list", .phase = {.name = "router"}},
      {.name = "gate+up", .phase = {.name = "products"}},
      {.name = "gate+up barrier", .phase = {.name = "products"}, .waits = true},
      {.name = "down", .phase = {.name = "products"}},
      {.name = "partial rows", .phase = {.name = "reduce"}, .waits = true},
      {.name = "sum", .phase = {.name = "reduce"}},
  };
  return kTags;
}

}  // namespace octet
