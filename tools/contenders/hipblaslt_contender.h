// hipBLASLt beside the grouped product, loaded at run time.
#ifndef OCTET_TOOLS_CONTENDERS_HIPBLASLT_CONTENDER_H_
#define OCTET_TOOLS_CONTENDERS_HIPBLASLT_CONTENDER_H_

#include <memory>

#include "tools/contenders/gemm_contender.h"

namespace octet {

// hipblaslt: one call for each expert, with the algorithm that the library deems the fastest.
std::unique_ptr<GemmContender> MakeHipblasltContender();

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_HIPBLASLT_CONTENDER_H_
