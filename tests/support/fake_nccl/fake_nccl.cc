#include "tests/support/fake_nccl/fake_nccl.h"

#include <dlfcn.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "runtime/node/capture.h"
#include "tests/support/fake_nccl/fake_nccl_faults.h"
#include "tests/support/fake_nccl/fake_nccl_kernels.h"

namespace octet {
namespace {

void* Library() {
  static void* const kLibrary = dlopen(OCTET_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  return kLibrary;
}

template <typename Function>
Function* Find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(Library(), name));
}

fake::NcclHooks Hooks() {
  return {
      .enqueue =
          [](void* stream, void (*work)(void*), void* data) {
            return static_cast<int>(
                hipLaunchHostFunc(static_cast<hipStream_t>(stream), work, data));
          },
      .enqueue_wait =
          [](void* stream, const uint32_t* word) {
            return static_cast<int>(LaunchWaitForWord(word, static_cast<hipStream_t>(stream)));
          },
      .is_capturing = [](void* stream) { return IsCapturing(static_cast<hipStream_t>(stream)); },
      .allocate_pinned =
          [](size_t bytes) {
            void* memory = nullptr;
            return hipHostMalloc(&memory, bytes) == hipSuccess ? memory : nullptr;
          }};
}

}  // namespace

// The library is found by its path here, and by its name afterwards.
bool LoadFakeNccl() {
  if (Library() == nullptr) {
    std::fprintf(stderr, "no fake of NCCL: %s\n", dlerror());
    return false;
  }
  const fake::NcclHooks hooks = Hooks();
  Find<void(const fake::NcclHooks&)>("octet_fake_nccl_set_hooks")(hooks);
  return true;
}

void SetNcclFaults(const fake::NcclFaults& faults) {
  Find<void(const fake::NcclFaults&)>("octet_fake_nccl_set_faults")(faults);
}

}  // namespace octet
