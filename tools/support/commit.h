// The state of the source tree that this program was built from.
#ifndef OCTET_TOOLS_SUPPORT_COMMIT_H_
#define OCTET_TOOLS_SUPPORT_COMMIT_H_

#include "absl/strings/string_view.h"

namespace octet {

// Returns "a41f98e", "a41f98e-dirty" if there were uncommitted changes, or "unknown".
absl::string_view Commit();

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_COMMIT_H_
