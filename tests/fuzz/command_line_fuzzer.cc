// The input is what stands behind `octet run`, an argument a line.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/ep_config.h"
#include "tests/fuzz/check.h"
#include "tools/command_line.h"
#include "tools/run_options.h"

namespace octet::fuzz {
namespace {

constexpr int kGpus = 8;

// Flags are the process's own: each input begins with their defaults.
void ResetFlags() {
  for (const absl::string_view name : RunFlags()) {
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    std::string error;
    Check(flag != nullptr && flag->ParseFrom(flag->DefaultValue(), &error));
  }
}

void CheckShape(const RunOptions& options) {
  const WorkloadSpec& spec = options.workload;
  Check(spec.num_ranks >= 1 && spec.num_ranks <= kGpus);
  Check(options.iters >= 1 && options.warmup >= 0);
  Check(Validate(options.config, spec.num_ranks).ok());
  Check(Workload::Check(spec).ok());
  Check(spec.drop >= 0 && spec.drop <= 1);
  Check(spec.tokens.empty() || spec.tokens.size() == static_cast<size_t>(spec.num_ranks));
  for (const int tokens : spec.tokens) {
    Check(tokens >= 0 && tokens <= options.config.max_tokens_per_rank);
  }
}

void Run(absl::string_view text) {
  ResetFlags();
  const std::vector<std::string> args = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const absl::StatusOr<CommandLine> line = ParseFlags(RunFlags(), args);
  if (!line.ok()) return CheckRefusal(line.status());
  if (line->Given("soak")) {
    const absl::StatusOr<SoakOptions> soak = ParseSoakOptions(*line, kGpus);
    Check(!soak.ok() ||
          (soak->num_ranks >= 1 && soak->num_ranks <= kGpus && soak->duration >= absl::Seconds(1)));
    return;
  }
  const absl::StatusOr<std::vector<RunOptions>> shapes = ParseRunOptions(*line, kGpus);
  if (!shapes.ok()) return Check(!shapes.status().message().empty());
  Check(!shapes->empty());
  for (const RunOptions& options : *shapes) CheckShape(options);
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
