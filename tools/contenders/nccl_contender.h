// NCCL (or RCCL) as a contender, if its header existed when this was built.
#ifndef OCTET_TOOLS_CONTENDERS_NCCL_CONTENDER_H_
#define OCTET_TOOLS_CONTENDERS_NCCL_CONTENDER_H_

#include <memory>

#include "tools/contenders/contender.h"

namespace octet {

// Returns nullptr if it did not (nccl_contender_none.cc).
std::unique_ptr<Contender> MakeNcclContender(Node& node);

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_NCCL_CONTENDER_H_
