// The grouped product of FP16 operands.
#include "kernels/gemm/grouped_gemm_kernel.h"

namespace octet {

template struct GroupedGemmOf<device::GemmElement::kFp16>;

}  // namespace octet
