#include "tools/contenders/gemm_contender.h"

namespace octet {

absl::StatusOr<std::unique_ptr<GemmContender>> MakeCublasContender() {
  return absl::UnavailableError("cuBLAS is for NVIDIA GPUs");
}

}  // namespace octet
