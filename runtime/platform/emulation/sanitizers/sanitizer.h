// Tells the sanitizers about lanes. Empty without sanitizers.
//
// The emulation itself is compiled without ThreadSanitizer's instrumentation, so ThreadSanitizer
// does not see its state and its context switches; TsanRelease and TsanAcquire report what orders
// memory between lanes. CMake therefore defines OCTET_EMULATION_TSAN.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SANITIZERS_SANITIZER_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SANITIZERS_SANITIZER_H_

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OCTET_EMULATION_ASAN 1
#endif
#endif

#if defined(OCTET_EMULATION_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(OCTET_EMULATION_TSAN)
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace octet::emulation {

#if defined(OCTET_EMULATION_ASAN)
inline constexpr bool kAsan = true;
inline void AsanPoison(const void* p, size_t bytes) { __asan_poison_memory_region(p, bytes); }
inline void AsanUnpoison(const void* p, size_t bytes) { __asan_unpoison_memory_region(p, bytes); }
#else
inline constexpr bool kAsan = false;
inline void AsanPoison(const void*, size_t) {}
inline void AsanUnpoison(const void*, size_t) {}
#endif

#if defined(OCTET_EMULATION_TSAN)
inline constexpr bool kTsan = true;
inline void TsanRelease(void* object) { __tsan_release(object); }
inline void TsanAcquire(void* object) { __tsan_acquire(object); }
inline void* TsanCreateContext() { return __tsan_create_fiber(0); }
inline void TsanDestroyContext(void* context) { __tsan_destroy_fiber(context); }
inline void* TsanCurrentContext() { return __tsan_get_current_fiber(); }
// Does not order the two contexts: neither sees what the other did before.
inline void TsanSwitchContext(void* context) {
  __tsan_switch_to_fiber(context, __tsan_switch_to_fiber_no_sync);
}
inline void TsanIgnoreBegin() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void TsanIgnoreEnd() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
inline constexpr bool kTsan = false;
inline void TsanRelease(void*) {}
inline void TsanAcquire(void*) {}
inline void* TsanCreateContext() { return nullptr; }
inline void TsanDestroyContext(void*) {}
inline void* TsanCurrentContext() { return nullptr; }
inline void TsanSwitchContext(void*) {}
inline void TsanIgnoreBegin() {}
inline void TsanIgnoreEnd() {}
#endif

#if defined(OCTET_EMULATION_WEAK_MEMORY)
inline constexpr bool kWeakMemory = true;
#else
inline constexpr bool kWeakMemory = false;
#endif

// Runs a scope in another of ThreadSanitizer's contexts, on the same stack.
class TsanContextScope {
 public:
  explicit TsanContextScope(void* context) : before_(TsanCurrentContext()) {
    if (context != nullptr) TsanSwitchContext(context);
  }
  ~TsanContextScope() {
    if (kTsan) TsanSwitchContext(before_);
  }
  TsanContextScope(const TsanContextScope&) = delete;
  TsanContextScope& operator=(const TsanContextScope&) = delete;

 private:
  void* before_;
};

// Hides the emulation's own work in a watched context: ThreadSanitizer intercepts allocation and
// the C library's functions, even when called from code that is not instrumented.
class TsanIgnoreScope {
 public:
  TsanIgnoreScope() { TsanIgnoreBegin(); }
  ~TsanIgnoreScope() { TsanIgnoreEnd(); }
  TsanIgnoreScope(const TsanIgnoreScope&) = delete;
  TsanIgnoreScope& operator=(const TsanIgnoreScope&) = delete;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SANITIZERS_SANITIZER_H_
