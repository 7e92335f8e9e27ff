#include "tests/support/node/injection.h"

namespace octet {

bool CanInject() { return false; }
void InjectError(int /*device*/, uint64_t /*call*/) {}
std::string EndInjection() { return ""; }

}  // namespace octet
