// The input is what stands behind `octet`, an argument a line: "run" or "perf", and its flags.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "octet/ep_config.h"
#include "tests/fuzz/check.h"
#include "tools/commands/command_line.h"
#include "tools/commands/perf_flags.h"
#include "tools/commands/run_flags.h"

namespace octet::fuzz {
namespace {

constexpr int kGpus = 8;

void CheckShape(const RunSpec& options) {
  const WorkloadSpec& spec = options.workload;
  Check(spec.num_ranks >= 1 && spec.num_ranks <= kGpus);
  Check(options.iters >= 1 && options.warmup >= 0);
  Check(Validate(options.workload.config, spec.num_ranks).ok());
  Check(Workload::Check(spec).ok());
  Check(spec.drop >= 0 && spec.drop <= 1);
  Check(spec.tokens.empty() || spec.tokens.size() == static_cast<size_t>(spec.num_ranks));
  for (const int tokens : spec.tokens) {
    Check(tokens >= 0 && tokens <= options.workload.config.max_tokens_per_rank);
  }
}

void RunPerf(const std::vector<std::string>& args) {
  PerfFlags flags;
  CommandLine line({}, kNcclTestsLetters);
  AddPerfFlags(line, flags);
  if (const absl::Status status = line.Parse(args); !status.ok()) return CheckRefusal(status);
  const absl::StatusOr<PerfSpec> perf = ResolvePerf(line, flags, kGpus);
  if (!perf.ok()) return Check(!perf.status().message().empty());
  Check(!perf->shapes.empty());
  for (const RunSpec& shape : perf->shapes) CheckShape(shape);
}

void RunRun(const std::vector<std::string>& args) {
  RunFlags flags;
  CommandLine line;
  AddRunFlags(line, flags);
  if (const absl::Status status = line.Parse(args); !status.ok()) return CheckRefusal(status);
  if (line.Given("soak")) {
    const absl::StatusOr<SoakSpec> soak = ResolveSoak(line, flags, kGpus);
    Check(!soak.ok() || line.Given("help") ||
          (soak->num_ranks >= 1 && soak->num_ranks <= kGpus && soak->duration >= absl::Seconds(1)));
    return;
  }
  const absl::StatusOr<std::vector<RunSpec>> shapes = ResolveRun(line, flags, kGpus);
  if (!shapes.ok()) return Check(!shapes.status().message().empty());
  Check(!shapes->empty());
  for (const RunSpec& shape : *shapes) CheckShape(shape);
}

void Run(absl::string_view text) {
  std::vector<std::string> args = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (args.empty()) return;
  const std::string command = args.front();
  args.erase(args.begin());
  if (command == "run") RunRun(args);
  if (command == "perf") RunPerf(args);
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
