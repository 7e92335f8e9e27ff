// The input is what stands behind `octet`, an argument a line: "run" or "perf", and its flags.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "octet/ep_config.h"
#include "tests/fuzz/check.h"
#include "tools/commands/command_line.h"
#include "tools/commands/perf_options.h"
#include "tools/commands/run_options.h"

namespace octet::fuzz {
namespace {

constexpr int kGpus = 8;

struct Default {
  absl::CommandLineFlag* flag;
  std::string value;
};
std::vector<Default> DefaultsOf(absl::Span<const absl::string_view> names) {
  std::vector<Default> defaults;
  for (const absl::string_view name : names) {
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    Check(flag != nullptr);
    defaults.push_back({flag, flag->DefaultValue()});
  }
  return defaults;
}

// Flags are the process's own: each input begins with their defaults.
void ResetFlags() {
  static const auto* const kRun = new std::vector<Default>(DefaultsOf(RunFlags()));
  static const auto* const kPerf = new std::vector<Default>(DefaultsOf(PerfFlags()));
  for (const std::vector<Default>* defaults : {kRun, kPerf}) {
    for (const Default& each : *defaults) {
      std::string error;
      Check(each.flag->ParseFrom(each.value, &error));
    }
  }
}

void CheckShape(const RunOptions& options) {
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
  const absl::StatusOr<CommandLine> line =
      ParseFlags(PerfFlags(), ExpandShortFlags(PerfShortFlags(), args));
  if (!line.ok()) return CheckRefusal(line.status());
  const absl::StatusOr<PerfOptions> options = ParsePerfOptions(*line, kGpus);
  if (!options.ok()) return Check(!options.status().message().empty());
  Check(!options->shapes.empty());
  for (const RunOptions& shape : options->shapes) CheckShape(shape);
}

void RunRun(const std::vector<std::string>& args) {
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

void Run(absl::string_view text) {
  ResetFlags();
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
