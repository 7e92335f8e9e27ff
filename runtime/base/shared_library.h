// A library that is loaded at run time, so that a program runs without it.
#ifndef OCTET_RUNTIME_BASE_SHARED_LIBRARY_H_
#define OCTET_RUNTIME_BASE_SHARED_LIBRARY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace octet {

// Stays loaded until the process ends, so functions outlive the object.
class SharedLibrary {
 public:
  // Loads the first of `names` that the dynamic linker finds (LD_LIBRARY_PATH). kUnavailable with
  // the linker's message for the last of them if it finds none.
  static absl::StatusOr<SharedLibrary> Open(absl::Span<const char* const> names);

  // Sets `function` to the function of that name; to null if there is none.
  template <typename Function>
  void Find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(Symbol(name));
  }

  // The same for a function that must be there: CheckComplete names it if it is not.
  template <typename Function>
  void Require(Function*& function, const char* name) {
    Find(function, name);
    if (function == nullptr) AddMissing(name);
  }

  // Returns kUnavailable, with the names, if a required function is missing.
  absl::Status CheckComplete() const;

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  void* Symbol(const char* name) const;
  void AddMissing(const char* name);

  void* handle_;
  std::string name_;
  std::string missing_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_BASE_SHARED_LIBRARY_H_
