#include "tools/support/launch.h"

#include "absl/functional/function_ref.h"
#include "runtime/base/launched.h"

namespace octet {

Launch LaunchOf(absl::FunctionRef<const char*(const char* name)> get) {
  const LaunchedProcess launched = LaunchedAs(get);
  Launch launch;
  launch.num_processes = launched.num_processes;
  launch.process = launched.process;
  return launch;
}

}  // namespace octet
