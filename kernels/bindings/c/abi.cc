#include "kernels/bindings/c/abi.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "octet/dtype.h"
#include "octet/node_failure.h"
#include "octet/octet.h"

namespace octet::c {
namespace {

struct LastError {
  absl::Status status;
  std::string message;  // with a 0 at its end
  std::optional<NodeFailure> failure;
};

LastError& Last() {
  thread_local LastError last;
  return last;
}

thread_local const char* current_function = "";

}  // namespace

InFunction::InFunction(const char* name) : outer_(std::exchange(current_function, name)) {}
InFunction::~InFunction() { current_function = outer_; }

int32_t Report(const absl::Status& status) noexcept {
  if (status.ok()) return OCTET_OK;
  LastError& last = Last();
  last.status = status;
  try {
    last.message = std::string(status.message());
    last.failure = FailureOf(status);
  } catch (...) {  // the host is out of memory: the code has to do
    last.message.clear();
    last.failure.reset();
  }
  return static_cast<int32_t>(status.code());
}

void ForgetErrors() { Last() = {}; }

absl::Status StatusOfCode(int32_t code) {
  if (code == OCTET_OK) return absl::OkStatus();
  if (static_cast<int32_t>(Last().status.code()) == code) return Last().status;
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::StrCat("a function of the caller's has returned ", code, " (",
                                   octet_code_name(code), ")"));
}

absl::Status StatusOfException() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the host is out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("an exception: ", error.what()));
  } catch (...) {
    return absl::InternalError("an exception that is no std::exception");
  }
}

absl::Status Refused(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(current_function, ": ", what));
}

absl::Status NotNull(std::initializer_list<NamedHandle> handles) {
  for (const NamedHandle& each : handles) {
    if (each.handle == nullptr) return Refused(absl::StrCat(each.name, " is null"));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(absl::string_view name, uint64_t size, size_t known) {
  if (size < sizeof(uint64_t)) {
    return Refused(absl::StrCat(name, "->size is ", size, "; set it to the sizeof of the struct"));
  }
  if (size > known) {
    return Refused(absl::StrCat(name, "->size is ", size, ", and Octet ", octet_version(),
                                " knows ", known,
                                " bytes of this struct: the program has been compiled for a later "
                                "version, or size is not set"));
  }
  return absl::OkStatus();
}

absl::Status ReadDType(absl::string_view name, int32_t code, DType* value) {
  if (code == OCTET_BFLOAT16 || code == OCTET_FLOAT16) {
    *value = code == OCTET_BFLOAT16 ? DType::kBFloat16 : DType::kFloat16;
    return absl::OkStatus();
  }
  return Refused(absl::StrCat(name, " is ", code, ", and must be one of ", OCTET_BFLOAT16, " (",
                              InfoOf(DType::kBFloat16).name, "), ", OCTET_FLOAT16, " (",
                              InfoOf(DType::kFloat16).name, ")"));
}

int32_t CodeOf(DType dtype) { return dtype == DType::kBFloat16 ? OCTET_BFLOAT16 : OCTET_FLOAT16; }

absl::StatusOr<int> ReadInt(absl::string_view name, int64_t value) {
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    return Refused(absl::StrCat(name, " is ", value, ", which is out of range"));
  }
  return static_cast<int>(value);
}

}  // namespace octet::c

using octet::NodeFailure;
using octet::c::Call;

const char* octet_last_error(void) { return octet::c::Last().message.c_str(); }

int32_t octet_last_failure(octet_failure* failure) {
  // Not by Call, which would make this function's own error the last one.
  if (!octet::c::CheckOut("failure", failure).ok()) {
    return OCTET_INVALID_ARGUMENT;
  }
  const std::optional<NodeFailure>& last = octet::c::Last().failure;
  if (!last.has_value()) return OCTET_NOT_FOUND;
  octet::c::Write({.size = sizeof(octet_failure),
                   .kind = static_cast<int32_t>(last->kind),
                   .rank = last->rank,
                   .peer = last->peer,
                   .index = last->index,
                   .expected = last->expected,
                   .seen = last->seen,
                   .waited_ns = absl::ToInt64Nanoseconds(last->waited),
                   .phase = last->phase.c_str(),
                   .flag = last->flag.c_str(),
                   .object = last->object.c_str()},
                  failure);
  return OCTET_OK;
}

int32_t octet_fail(int32_t code, const char* message) {
  if (code == OCTET_OK) return OCTET_OK;
  return Call(__func__, [&] {
    return absl::Status(static_cast<absl::StatusCode>(code), message == nullptr ? "" : message);
  });
}

const char* octet_code_name(int32_t code) {
  constexpr std::array<const char*, OCTET_DATA_LOSS + 1> kNames = {"OK",
                                                                   "CANCELLED",
                                                                   "UNKNOWN",
                                                                   "INVALID_ARGUMENT",
                                                                   "DEADLINE_EXCEEDED",
                                                                   "NOT_FOUND",
                                                                   "ALREADY_EXISTS",
                                                                   "PERMISSION_DENIED",
                                                                   "RESOURCE_EXHAUSTED",
                                                                   "FAILED_PRECONDITION",
                                                                   "ABORTED",
                                                                   "OUT_OF_RANGE",
                                                                   "UNIMPLEMENTED",
                                                                   "INTERNAL",
                                                                   "UNAVAILABLE",
                                                                   "DATA_LOSS"};
  return code >= 0 && code <= OCTET_DATA_LOSS ? kNames[static_cast<size_t>(code)] : "UNKNOWN";
}

const char* octet_version(void) { return OCTET_VERSION; }
const char* octet_platform(void) { return OCTET_PLATFORM_NAME; }
