// cuBLAS beside the grouped product, loaded at run time.
#ifndef OCTET_TOOLS_CONTENDERS_CUBLAS_CONTENDERS_H_
#define OCTET_TOOLS_CONTENDERS_CUBLAS_CONTENDERS_H_

#include <memory>
#include <vector>

#include "tools/contenders/gemm_contender.h"

namespace octet {

//   cublas          one call for each expert
//   cublas_streams  the same on up to eight streams, forked from the caller's and joined to it
//   cublas_grouped  cublasGemmGroupedBatchedEx, of cuBLAS 12.5 and later
std::vector<std::unique_ptr<GemmContender>> MakeCublasContenders();

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_CUBLAS_CONTENDERS_H_
