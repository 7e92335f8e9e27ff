// Random operands of grouped products in the current GPU's memory, and the check of what a product
// has made of them.
#ifndef OCTET_TOOLS_MEASURE_GEMM_GEMM_OPERANDS_H_
#define OCTET_TOOLS_MEASURE_GEMM_GEMM_OPERANDS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/grouped_gemm.h"
#include "runtime/memory/device_memory.h"

namespace octet {

// Return elements of a or b, normal numbers, and `words` 4-byte words of scales of theirs, around
// the inverse of the elements' deviation, so that operands with scales are about standard normal.
// Elements of MXFP4 are random bits. Nothing waits: the elements
// are there in the order of the null stream.
absl::StatusOr<DeviceMemory> RandomGemmElements(const WeightFormat& format, int64_t elements,
                                                uint32_t seed);
absl::StatusOr<DeviceMemory> RandomGemmScales(const WeightFormat& format, int64_t words,
                                              uint32_t seed);

// A product that the GPU has computed: its arguments, and on the host what of them is not random
// elements.
struct ComputedGemm {
  GroupedGemmConfig config;
  GroupedGemmArgs args;
  absl::Span<const int32_t> offsets;       // [L + 1]
  absl::Span<const int32_t> counts = {};   // [L]; empty: up to the next offset
  absl::Span<const float> bias = {};       // [L][N] or empty
  absl::Span<const float> row_scale = {};  // [max_rows] or empty
};

struct GemmCheck {
  int64_t checked = 0;  // elements
  int64_t wrong = 0;
  std::string first_wrong;  // where, and what it should be; empty if none is
};

// Compares random patches of one row and eight columns, among them the last of the last row, with
// float64. The product must be done.
absl::StatusOr<GemmCheck> CheckGemmSamples(const ComputedGemm& gemm, int samples, uint32_t seed);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_GEMM_GEMM_OPERANDS_H_
