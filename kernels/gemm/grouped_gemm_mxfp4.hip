// The grouped product of MXFP4 operands.
#include "kernels/gemm/grouped_gemm_kernel.h"

namespace octet {

template struct GroupedGemmOf<device::GemmElement::kMxfp4>;

}  // namespace octet
