// The grouped product of FP8 rows and MXFP4 weights.
#include "kernels/gemm/grouped_gemm_kernel.h"

namespace octet {

template struct GroupedGemmOf<device::GemmElement::kFp8Mxfp4>;

}  // namespace octet
