// What must hold in a fuzz target: a failure ends the process, with the place of it.
#ifndef OCTET_TESTS_FUZZ_CHECK_H_
#define OCTET_TESTS_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <source_location>

#include "absl/status/status.h"

namespace octet::fuzz {

inline void Check(bool holds, const std::source_location where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: does not hold\n", where.file_name(), where.line());
  std::abort();
}

// Wrong input is the user's mistake, and is told so.
inline void CheckRefusal(const absl::Status& status,
                         const std::source_location where = std::source_location::current()) {
  Check(absl::IsInvalidArgument(status) && !status.message().empty(), where);
}

}  // namespace octet::fuzz

#endif  // OCTET_TESTS_FUZZ_CHECK_H_
