#include "tests/support/fake_nccl/fake_nccl.h"

namespace octet {

bool LoadFakeNccl() { return false; }
void SetNcclFaults(const fake::NcclFaults& /*faults*/) {}

}  // namespace octet
