// Runs work on all cores of the host.
#ifndef OCTET_TOOLS_SUPPORT_PARALLEL_FOR_H_
#define OCTET_TOOLS_SUPPORT_PARALLEL_FOR_H_

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace octet {

// Calls body(i) once for each i < n, in any order, on as many threads as this process may use CPUs;
// returns when all are done. Not for the threads of a Node, which are bound to few CPUs.
void ParallelFor(size_t n, absl::FunctionRef<void(size_t)> body);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_PARALLEL_FOR_H_
