// The element type and the rows that follow from a GroupedGemmConfig.
#ifndef OCTET_KERNELS_GEMM_GEMM_CONFIG_H_
#define OCTET_KERNELS_GEMM_GEMM_CONFIG_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/grouped_gemm.h"
#include "runtime/platform/gemm_call.h"

namespace octet {

// Returns what the elements of a and b are.
device::GemmElement ElementOf(const GroupedGemmConfig& config);

// Return the bytes of a row of a, of all weights and of a row of the output.
size_t InputRowBytes(const GroupedGemmConfig& config);
size_t WeightBytes(const GroupedGemmConfig& config);
size_t OutputRowBytes(const GroupedGemmConfig& config);

// Returns the rows that an expert usually has; `config` must be valid.
int64_t ExpectedRows(const GroupedGemmConfig& config);

namespace device {

absl::Span<const EnumEntry<GemmElement>> EnumTable(GemmElement);  // names: octet/enum_names.h

}  // namespace device
}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_GEMM_CONFIG_H_
