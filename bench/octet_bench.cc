// Google Benchmark's program for Octet. Its own flags (--benchmark_filter, --benchmark_out,
// --benchmark_repetitions, ...) and those below; docs/measuring.md says what is measured.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "bench/ceiling_benchmarks.h"
#include "bench/gemm_benchmarks.h"
#include "bench/layer_benchmarks.h"
#include "bench/session.h"
#include "bench/step_benchmarks.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/command_line.h"
#include "tools/commands/run_options.h"
#include "tools/support/atomic_file.h"
#include "tools/support/commit.h"
#include "tools/support/exit_code.h"

ABSL_FLAG(bool, all_shapes, false,
          "on emulated GPUs, too, the shapes of the real ones; they take minutes");

namespace octet {
namespace {

constexpr absl::string_view kName = "octet_bench";
// The flags that change what is measured.
constexpr auto kMeasureFlags = std::to_array<absl::string_view>(
    {"align", "slots", "flags", "fuse_expert", "blocks", "send_blocks", "waves", "row_parts"});
constexpr auto kFlags =
    JoinFlags(std::to_array<absl::string_view>({"ranks", "check", "timeout_ms", "all_shapes"}),
              kMeasureFlags);

// Enough for a median, and to compare two runs by the order of their steps' times.
constexpr absl::string_view kDefaultRepetitions = "--benchmark_repetitions=20";

int Fail(int exit_code, const absl::Status& status) {
  absl::FPrintF(stderr, "octet_bench: %s\n", status.message());
  return exit_code;
}
int Fail(const absl::Status& status) { return Fail(ExitCodeOf(status), status); }

// Returns the flags that change what is measured, if they are not at their defaults.
std::string UnusualFlags() {
  std::vector<std::string> unusual;
  for (const absl::string_view name : kMeasureFlags) {
    const absl::CommandLineFlag& flag = *absl::FindCommandLineFlag(name);
    if (flag.CurrentValue() == flag.DefaultValue()) continue;
    unusual.push_back(absl::StrCat("--", name, "=", flag.CurrentValue()));
  }
  return absl::StrJoin(unusual, " ");
}

void AddContext(Session& session) {
  const Topology& topology = session.node().topology();
  benchmark::AddCustomContext("octet_commit", std::string(Commit()));
  benchmark::AddCustomContext("platform", topology.platform);
  benchmark::AddCustomContext("gpu", topology.gpus.front().name);
  benchmark::AddCustomContext("ranks", absl::StrCat(session.node().num_ranks()));
  benchmark::AddCustomContext("driver_version", absl::StrCat(topology.driver_version));
  benchmark::AddCustomContext("runtime_version", absl::StrCat(topology.runtime_version));
  benchmark::AddCustomContext("flags", UnusualFlags());
  if (session.emulated()) {
    benchmark::AddCustomContext("note",
                                "emulated GPUs: times say nothing about the speed of real ones");
  }
  benchmark::AddCustomContext("ceiling_all_to_all_GBps",
                              absl::StrFormat("%.3f", session.ceilings().all_to_all_gbps));
}

// Google Benchmark's reporter does not check whether its file is written completely; this one does.
class JsonFile final : public benchmark::JSONReporter {
 public:
  void Finalize() override {
    JSONReporter::Finalize();
    complete_ = GetOutputStream().flush().good();
  }
  bool complete() const { return complete_; }

 private:
  bool complete_ = true;
};

// Runs the benchmarks that the flags select and returns their number, or an error if the results
// cannot be written. `out`: the file of --benchmark_out, if it is JSON; else empty.
absl::StatusOr<size_t> RunAll(const std::string& out) {
  JsonFile file;
  const size_t run = benchmark::RunSpecifiedBenchmarks(nullptr, out.empty() ? nullptr : &file);
  if (!file.complete()) return absl::DataLossError(absl::StrCat("cannot write all to ", out));
  OCTET_RETURN_IF_ERROR(FlushStandardOutput());
  return run;
}

int Help() {
  const Command command = {
      .name = kName,
      .summary = "",
      .details =
          "Times dispatch and combine of all contenders, grouped products of experts, whole "
          "layers\n"
          "and the ceilings of links and launches. The first step of each benchmark is verified "
          "to\n"
          "the bit, a sample of each product and of each layer's output against float64. Exit\n"
          "codes: 0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline.",
      .flags = kFlags,
      .run = nullptr};
  absl::PrintF("%s\n", CommandHelp(command, ""));
  benchmark::PrintDefaultHelp();
  const absl::Status written = FlushStandardOutput();
  return written.ok() ? kExitOk : Fail(kExitUsage, written);
}

int Main(int argc, char** argv) {
  // Google Benchmark removes its own flags; the last of two equal ones counts.
  std::vector<char*> all = {argv[0]};
  std::string repetitions(kDefaultRepetitions);
  std::string aggregates = "--benchmark_display_aggregates_only=true";
  all.push_back(repetitions.data());
  all.push_back(aggregates.data());
  std::string out;
  bool json = true;
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (arg == "--help") return Help();
    if (absl::ConsumePrefix(&arg, "--benchmark_out=")) out = std::string(arg);
    if (absl::ConsumePrefix(&arg, "--benchmark_out_format=")) json = arg == "json";
    all.push_back(argv[i]);
  }
  if (!out.empty()) {
    if (const absl::Status status = ProbeWrite(out); !status.ok()) return Fail(status);
  }
  int count = static_cast<int>(all.size());
  benchmark::Initialize(&count, all.data());
  const absl::StatusOr<CommandLine> line =
      ParseFlags(kFlags, std::vector<std::string>(all.begin() + 1, all.begin() + count));
  if (!line.ok()) return Fail(line.status());

  const absl::StatusOr<Topology> topology = DiscoverTopology();
  if (!topology.ok()) return Fail(topology.status());
  const absl::StatusOr<RunOptions> options =
      ParseShapeOptions(*line, static_cast<int>(topology->gpus.size()));
  if (!options.ok()) return Fail(options.status());
  const absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(*options, absl::GetFlag(FLAGS_all_shapes));
  if (!session.ok()) return Fail(session.status());

  AddContext(**session);
  RegisterCeilingBenchmarks(**session);
  RegisterStepBenchmarks(**session);
  RegisterGemmBenchmarks(**session);
  RegisterLayerBenchmarks(**session);
  const absl::StatusOr<size_t> run = RunAll(json ? out : "");
  benchmark::Shutdown();
  benchmark::ClearRegisteredBenchmarks();  // frees their memory on the GPUs
  if (!(*session)->status().ok()) return Fail((*session)->status());
  if (!run.ok()) return Fail(kExitUsage, run.status());
  if (*run > 0) return kExitOk;
  // Google Benchmark has already reported a filter that matches nothing.
  if (topology->emulated() && !absl::GetFlag(FLAGS_all_shapes)) {
    absl::FPrintF(stderr, "octet_bench: --all_shapes adds the shapes of real GPUs\n");
  }
  return kExitUsage;
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) { return octet::Main(argc, argv); }
