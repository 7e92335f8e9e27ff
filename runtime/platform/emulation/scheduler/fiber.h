// Contexts that a thread can leave and resume.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_FIBER_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_FIBER_H_

#include <cstddef>

#include "sanitizers/sanitizer.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace octet::emulation {

struct Context {
  void* stack_pointer = nullptr;  // of a context that is not running
  void* stack_low = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;    // AddressSanitizer's
  void* tsan_context = nullptr;  // ThreadSanitizer's
#if !defined(__x86_64__)
  ucontext_t machine{};
#endif
};

// Creates a context that calls entry(argument) when first switched to. `entry` must first call
// EnteredContext() and must not return.
void PrepareContext(Context* context, void* stack_low, size_t stack_bytes, void (*entry)(void*),
                    void* argument);

// Describes the calling thread, so that it can be left and resumed.
void AdoptThread(Context* context);

#if defined(__x86_64__)
extern "C" void octet_emulation_switch(void** save_stack_pointer, void* stack_pointer);
#endif

// Switches from `from`, which is running, to `to`. `for_good`: `from` never runs again.
[[gnu::always_inline]] inline void SwitchContext(Context* from, Context* to,
                                                 [[maybe_unused]] bool for_good = false) {
#if defined(OCTET_EMULATION_ASAN)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &from->fake_stack, to->stack_low,
                                 to->stack_bytes);
#endif
  if (kTsan && to->tsan_context != from->tsan_context) TsanSwitchContext(to->tsan_context);
#if defined(__x86_64__)
  octet_emulation_switch(&from->stack_pointer, to->stack_pointer);
#else
  swapcontext(&from->machine, &to->machine);
#endif
#if defined(OCTET_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

inline void EnteredContext() {
#if defined(OCTET_EMULATION_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_FIBER_H_
