// The grouped product of FP8 operands.
#include "kernels/gemm/grouped_gemm_kernel.h"

namespace octet {

template struct GroupedGemmOf<device::GemmElement::kFp8>;

}  // namespace octet
