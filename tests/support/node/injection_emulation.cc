#include "emulation.h"
#include "tests/support/node/injection.h"

namespace octet {

bool CanInject() { return true; }
void InjectError(int device, uint64_t call) {
  emulation::InjectError({.call = call, .device = device});
}
std::string EndInjection() { return emulation::EndInjection(); }

}  // namespace octet
