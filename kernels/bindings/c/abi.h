// All files of the C interface share this: errors, structs that carry their size, and handles.
#ifndef OCTET_KERNELS_BINDINGS_C_ABI_H_
#define OCTET_KERNELS_BINDINGS_C_ABI_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "octet/dtype.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "octet/octet.h"

namespace octet::c {

// ---- errors

// Makes `status` the last error of this thread unless it is OK, and returns its code.
int32_t Report(const absl::Status& status) noexcept;
// Makes this thread one that has had no error.
void ForgetErrors();
// Returns the Status that a function of the caller's has returned as `code`: this thread's last
// error if that has this code, else one that says no more than the code.
absl::Status StatusOfCode(int32_t code);
// Returns the error of the exception that is being handled.
absl::Status StatusOfException();

// The function of the interface that this thread is in, for the errors of what follows.
class InFunction {
 public:
  explicit InFunction(const char* name);
  ~InFunction();
  InFunction(const InFunction&) = delete;
  InFunction& operator=(const InFunction&) = delete;

 private:
  const char* const outer_;
};

// Returns kInvalidArgument: "octet_ep_create: " and `what`.
absl::Status Refused(absl::string_view what);

// Runs `body`, of the function of that name; its Status becomes a code. No exception leaves it.
template <typename Body>
int32_t Call(const char* function, const Body& body) noexcept {
  const InFunction in_function(function);
  try {
    return Report(body());
  } catch (...) {
    return Report(StatusOfException());
  }
}

// Numbers whose default is 1 are 1 when they are left 0.
inline int OrOne(int32_t value) { return value == 0 ? 1 : value; }

struct NamedHandle {
  absl::string_view name;
  const void* handle;
};
// Returns kInvalidArgument, "octet_ep_dispatch: rank is null", if one of them is.
absl::Status NotNull(std::initializer_list<NamedHandle> handles);

// ---- structs

// Returns kInvalidArgument if a struct of `known` bytes cannot be the caller's, who says that it
// has `size` bytes.
absl::Status CheckSize(absl::string_view name, uint64_t size, size_t known);

// Returns the caller's struct; what an older one lacks is 0. `T` begins with its size.
template <typename T>
absl::StatusOr<T> Read(absl::string_view name, const T* given) {
  T read = {};
  if (given == nullptr) return Refused(absl::StrCat(name, " is null"));
  if (absl::Status status = CheckSize(name, given->size, sizeof(T)); !status.ok()) {
    return status;
  }
  std::memcpy(&read, given, given->size);
  read.size = sizeof(T);
  return read;
}
// The same for a struct that may be absent: all of it is 0 then.
template <typename T>
absl::StatusOr<T> ReadOptional(absl::string_view name, const T* given) {
  if (given == nullptr) return T{};
  return Read(name, given);
}

// Writes as much of `value` as the caller's struct, which CheckOut has accepted, has room for.
template <typename T>
void Write(T value, T* out) {
  value.size = out->size;
  std::memcpy(static_cast<void*>(out), &value, out->size);
}
template <typename T>
absl::Status CheckOut(absl::string_view name, const T* out) {
  if (out == nullptr) return Refused(absl::StrCat(name, " is null"));
  return CheckSize(name, out->size, sizeof(T));
}

// ---- enumerators: those of C++ and C have the same numbers

// Sets `value` to the enumerator `code`, or returns kInvalidArgument with those that there are:
// "octet_ep_create: strategy is 9, and must be 0 (auto), 1 (direct), ...".
template <typename Enum>
absl::Status ReadEnum(absl::string_view name, int32_t code, Enum* value) {
  std::string known;
  for (const EnumEntry<Enum>& entry : EnumTable(Enum{})) {
    if (static_cast<int32_t>(entry.value) == code) {
      *value = entry.value;
      return absl::OkStatus();
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", static_cast<int32_t>(entry.value), " (",
                    entry.name, ")");
  }
  return Refused(absl::StrCat(name, " is ", code, ", and must be one of ", known));
}
// DType is the exception: its default must be 0.
absl::Status ReadDType(absl::string_view name, int32_t code, DType* value);
int32_t CodeOf(DType dtype);

// Returns `value` as an int, or kInvalidArgument.
absl::StatusOr<int> ReadInt(absl::string_view name, int64_t value);

// ---- functions of the caller's

// Calls a function of the caller's.
template <typename... Arguments>
absl::Status CallBack(int32_t (*function)(Arguments...), Arguments... arguments) {
  try {
    return StatusOfCode(function(arguments...));
  } catch (...) {
    return StatusOfException();
  }
}

}  // namespace octet::c

#endif  // OCTET_KERNELS_BINDINGS_C_ABI_H_
