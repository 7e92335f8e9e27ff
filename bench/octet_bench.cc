// Google Benchmark's program for Octet. Its own flags (--benchmark_filter, --benchmark_out,
// --benchmark_repetitions, ...) and those below; docs/measuring.md says what is measured.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "bench/ceiling_benchmarks.h"
#include "bench/gemm_benchmarks.h"
#include "bench/layer_benchmarks.h"
#include "bench/placement_benchmarks.h"
#include "bench/session.h"
#include "bench/step_benchmarks.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/command_line.h"
#include "tools/commands/run_flags.h"
#include "tools/step/run_spec.h"
#include "tools/support/atomic_file.h"
#include "tools/support/commit.h"
#include "tools/support/exit_code.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "octet_bench";
struct BenchFlags {
  RunSpec run;
  bool all_shapes = false;
};

// The flags that change what is measured.
constexpr auto kMeasureFlags = std::to_array<absl::string_view>(
    {"align", "slots", "flags", "fuse_expert", "blocks", "send_blocks", "waves", "row_parts"});

void AddBenchFlags(CommandLine& line, BenchFlags& flags) {
  AddFlags(line, flags.run, {"ranks", "check", "timeout_ms"});
  line.Add("all_shapes", flags.all_shapes,
           "on emulated GPUs, too, the shapes of the real ones; they take minutes");
  AddFlags(line, flags.run, kMeasureFlags);
}

// Enough for a median, and to compare two runs by the order of their steps' times.
constexpr absl::string_view kDefaultRepetitions = "--benchmark_repetitions=20";

int Fail(int exit_code, const absl::Status& status) {
  absl::FPrintF(stderr, "octet_bench: %s\n", status.message());
  return exit_code;
}
int Fail(const absl::Status& status) { return Fail(ExitCodeOf(status), status); }

// Returns the flags that change what is measured, if they are not at their defaults.
std::string UnusualFlags(const RunSpec& run) {
  RunSpec bound;
  CommandLine line;
  AddFlags(line, bound, kMeasureFlags);
  bound = run;
  return absl::StrJoin(line.Changed(), " ");
}

void AddContext(Session& session) {
  const Topology& topology = session.node().topology();
  benchmark::AddCustomContext("octet_commit", std::string(Commit()));
  benchmark::AddCustomContext("platform", topology.platform);
  benchmark::AddCustomContext("gpu", topology.gpus.front().name);
  benchmark::AddCustomContext("ranks", absl::StrCat(session.node().num_ranks()));
  benchmark::AddCustomContext("driver_version", absl::StrCat(topology.driver_version));
  benchmark::AddCustomContext("runtime_version", absl::StrCat(topology.runtime_version));
  benchmark::AddCustomContext("flags", UnusualFlags(session.options()));
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

int Help(const CommandLine& line) {
  constexpr absl::string_view kDetails =
      "Times dispatch and combine of all contenders, grouped products of experts, whole "
      "layers\n"
      "and the ceilings of links and launches. The first step of each benchmark is verified "
      "to\n"
      "the bit, a sample of each product and of each layer's output against float64. Exit\n"
      "codes: 0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline.";
  absl::PrintF("%s\n", CommandHelp(kName, kDetails, line));
  benchmark::PrintDefaultHelp();
  const absl::Status written = FlushStandardOutput();
  return written.ok() ? kExitOk : Fail(kExitUsage, written);
}

int Main(int argc, char** argv) {
  BenchFlags flags;
  CommandLine line;
  AddBenchFlags(line, flags);
  // Google Benchmark removes its own flags; the last of two equal ones counts.
  std::vector<char*> all = {argv[0]};
  std::string repetitions(kDefaultRepetitions);
  // For a person. What a program reads has all repetitions.
  std::string aggregates = "--benchmark_display_aggregates_only=true";
  all.push_back(repetitions.data());
  std::string out;
  bool json = true;
  bool console = true;
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (arg == "--help") return Help(line);
    if (absl::ConsumePrefix(&arg, "--benchmark_out=")) out = std::string(arg);
    if (absl::ConsumePrefix(&arg, "--benchmark_out_format=")) json = arg == "json";
    if (absl::ConsumePrefix(&arg, "--benchmark_format=")) console = arg == "console";
    all.push_back(argv[i]);
  }
  if (console) all.insert(all.begin() + 1, aggregates.data());
  if (!out.empty()) {
    if (const absl::Status status = ProbeWrite(out); !status.ok()) return Fail(status);
  }
  int count = static_cast<int>(all.size());
  benchmark::Initialize(&count, all.data());
  const absl::Status parsed = line.Parse({all.begin() + 1, all.begin() + count});
  if (!parsed.ok()) return Fail(parsed);

  const absl::StatusOr<Topology> topology = DiscoverTopology();
  if (!topology.ok()) return Fail(topology.status());
  const absl::Status ranks = ResolveRanks(line, NumGpus(topology), flags.run);
  if (!ranks.ok()) return Fail(ranks);
  const absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(flags.run, flags.all_shapes);
  if (!session.ok()) return Fail(session.status());

  AddContext(**session);
  RegisterCeilingBenchmarks(**session);
  RegisterStepBenchmarks(**session);
  RegisterGemmBenchmarks(**session);
  RegisterLayerBenchmarks(**session);
  RegisterPlacementBenchmarks(**session);
  const absl::StatusOr<size_t> run = RunAll(json ? out : "");
  benchmark::Shutdown();
  benchmark::ClearRegisteredBenchmarks();  // frees their memory on the GPUs
  if (!(*session)->status().ok()) return Fail((*session)->status());
  if (!run.ok()) return Fail(kExitUsage, run.status());
  if (*run > 0) return kExitOk;
  // Google Benchmark has already reported a filter that matches nothing.
  if (topology->emulated() && !flags.all_shapes) {
    absl::FPrintF(stderr, "octet_bench: --all_shapes adds the shapes of real GPUs\n");
  }
  return kExitUsage;
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) { return octet::Main(argc, argv); }
