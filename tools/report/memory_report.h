// Texts of a layer's memory on each GPU, and of the rows that have come to its experts.
#ifndef OCTET_TOOLS_REPORT_MEMORY_REPORT_H_
#define OCTET_TOOLS_REPORT_MEMORY_REPORT_H_

#include <string>

#include "octet/expert_parallel.h"
#include "octet/layer_memory.h"

namespace octet {

// A table of the pieces. `even`: of the same layer with memory for even routing only; nullptr if
// its strategy has no capacity.
std::string LayerMemoryText(const LayerMemory& memory, const LayerMemory* even, int num_ranks);

// The rows of each expert, those with most first.
std::string LoadsText(const ExpertLoads& loads, int num_ranks);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_MEMORY_REPORT_H_
