// The experts' stand-ins on the host: for steps whose rows are bytes that no expert understands,
// and with outputs that do not depend on what dispatch has delivered.
#ifndef OCTET_TESTS_SUPPORT_HOST_EXPERTS_H_
#define OCTET_TESTS_SUPPORT_HOST_EXPERTS_H_

#include <cstdint>
#include <vector>

#include "octet/ep_config.h"
#include "tools/workload/step_input.h"

namespace octet {

// Returns the rows of CombineArgs::expert_out on `rank`: what the experts make of x. Rows of
// padding are NaNs.
std::vector<uint16_t> HostExpertOutputs(const EpConfig& config, const StepInput& input, int rank);

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_HOST_EXPERTS_H_
