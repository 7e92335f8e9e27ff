// Errors of HIP calls at will, on platforms that can do that: tests link the .cc file of theirs.
#ifndef OCTET_TESTS_SUPPORT_NODE_INJECTION_H_
#define OCTET_TESTS_SUPPORT_NODE_INJECTION_H_

#include <cstdint>
#include <string>

namespace octet {

bool CanInject();

// The `call`-th HIP call from now on of a thread whose current device is `device` fails with
// hipErrorUnknown and does nothing.
void InjectError(int device, uint64_t call);

// The call that failed; empty if it has not come to that, and then it will not.
std::string EndInjection();

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NODE_INJECTION_H_
