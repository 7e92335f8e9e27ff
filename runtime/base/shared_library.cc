#include "runtime/base/shared_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace octet {

absl::StatusOr<SharedLibrary> SharedLibrary::Open(absl::Span<const char* const> names) {
  for (const char* name : names) {
    void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(handle, name);
  }
  return absl::UnavailableError(dlerror());
}

absl::Status SharedLibrary::CheckComplete() const {
  if (missing_.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name_, " lacks ", missing_));
}

void* SharedLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

void SharedLibrary::AddMissing(const char* name) {
  absl::StrAppend(&missing_, missing_.empty() ? "" : ", ", name);
}

}  // namespace octet
