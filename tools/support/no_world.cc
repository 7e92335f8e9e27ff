// HowToJoin in the program that is not linked to MPI.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/support/launch.h"

namespace octet {
namespace {

constexpr const char* kProgram = "octet_mpi";

}  // namespace

absl::StatusOr<JoinFunction> HowToJoin(const Launch& launch, char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / kProgram).string();
  execv(program.c_str(), argv);
  const int why = errno;
  return absl::UnimplementedError(absl::StrCat(
      "process ", launch.process, " of ", launch.num_processes, " cannot join the others, which ",
      program, " is for: ", std::strerror(why),
      why == ENOENT ? "; this Octet has been built without MPI (docs/several_nodes.md)" : ""));
}

}  // namespace octet
