// The sizes that follow from a GroupedGemmConfig.
#ifndef OCTET_KERNELS_GEMM_GEMM_CONFIG_H_
#define OCTET_KERNELS_GEMM_GEMM_CONFIG_H_

#include <cstddef>

#include "octet/grouped_gemm.h"
#include "octet/types/weight_format.h"

namespace octet {

// Returns the 4-byte words of a row of scales of weights of `columns` columns.
int ScaleWords(const WeightFormat& format, int columns);

// Return the bytes of a row of a, of all weights and of a row of the output.
size_t InputRowBytes(const GroupedGemmConfig& config);
size_t WeightBytes(const GroupedGemmConfig& config);
size_t OutputRowBytes(const GroupedGemmConfig& config);

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_GEMM_CONFIG_H_
