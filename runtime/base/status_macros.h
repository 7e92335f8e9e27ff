// Macros that return early if a Status is not OK.
#ifndef OCTET_RUNTIME_BASE_STATUS_MACROS_H_
#define OCTET_RUNTIME_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define OCTET_RETURN_IF_ERROR(expr)                               \
  do {                                                            \
    if (absl::Status octet_status = (expr); !octet_status.ok()) { \
      return octet_status;                                        \
    }                                                             \
  } while (false)

#define OCTET_CONCAT_INNER(a, b) a##b
#define OCTET_CONCAT(a, b) OCTET_CONCAT_INNER(a, b)
#define OCTET_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.status();                \
  lhs = *std::move(tmp)
// OCTET_ASSIGN_OR_RETURN(auto value, MayFail());
#define OCTET_ASSIGN_OR_RETURN(lhs, expr) \
  OCTET_ASSIGN_OR_RETURN_INNER(OCTET_CONCAT(octet_result_, __LINE__), lhs, expr)

#endif  // OCTET_RUNTIME_BASE_STATUS_MACROS_H_
