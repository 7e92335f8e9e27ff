// Which state of the source tree this program was made from.
#ifndef OCTET_TOOLS_SUPPORT_COMMIT_H_
#define OCTET_TOOLS_SUPPORT_COMMIT_H_

#include "absl/strings/string_view.h"

namespace octet {

// "a41f98e", "a41f98e-dirty" with changes that are not committed, or "unknown".
absl::string_view Commit();

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_COMMIT_H_
