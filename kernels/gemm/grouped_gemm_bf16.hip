// The grouped product of BF16 operands.
#include "kernels/gemm/grouped_gemm_kernel.h"

namespace octet {

template struct GroupedGemmOf<device::GemmElement::kBf16>;

}  // namespace octet
