// A process of a World that exchanges until something fails. world_death_test.py kills it.
//
//   world_member TIMEOUT_MS TRANSPORT [FAULT VICTIM]
//
// Prints "node N pid P", then "node N goes", then the errors of the Run that failed and of the one
// after it. Exits with 3 after a failure. An error of World::Create is printed as "node N is not
// created after ms M: STATUS". Faults:
//
//   absent         the victim never calls World::Create
//   absent_own     the same, and the processes have started MPI themselves
//   stays          all end the World after some steps; the victim never leaves MPI_Finalize
//   slow           from "goes" on MPI_Improbe takes long in all processes
//   late           after "goes" the victim is late for a step, but runs; all end the World after
//                  some steps
//   stops          after "goes" the victim stops itself, as SIGSTOP does, amid a step
//   stops_between  likewise, between two steps; continued, it makes the next call late
//   hangs          from "goes" on MPI_Improbe does not return in the victim
//   hangs_amid     likewise, from a step's exchange on
#include <hip/hip_runtime.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "octet/world.h"
#include "runtime/net/rails/rail.h"
#include "tests/support/fake_nccl/fake_nccl.h"

namespace octet {
namespace {

constexpr absl::Duration kArrivalTimeout = absl::Seconds(3);  // of those that wait in vain
constexpr absl::Duration kEndTimeout = absl::Seconds(15);     // of those that come and then stay
// Shorter than the timeout of the processes.
constexpr absl::Duration kLate = absl::Milliseconds(1500);
constexpr absl::Duration kLateSlice = absl::Milliseconds(10);
constexpr int kStepsBeforeTheEnd = 30;
// Two of them take longer than the time between two signs of life, a twentieth of the timeout.
constexpr absl::Duration kSlowProbe = absl::Milliseconds(100);

struct Fault {
  std::string name;
  bool mine = false;  // this process is the victim
};

std::atomic<bool>& Hangs() {
  static std::atomic<bool> hangs{false};
  return hangs;
}

std::atomic<bool>& IsSlow() {
  static std::atomic<bool> slow{false};
  return slow;
}

const Fault& TheFault(const Fault* set = nullptr) {
  static Fault fault;
  if (set != nullptr) fault = *set;
  return fault;
}

void Say(absl::string_view text) {
  const std::string line = absl::StrCat(text, "\n");
  std::fwrite(line.data(), 1, line.size(), stdout);  // whole lines
  std::fflush(stdout);
}

// The launcher's number of this process, also where there is no MPI yet.
int Process() {
  const char* const text = std::getenv("OMPI_COMM_WORLD_RANK");
  int process = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &process)) return 0;
  return process;
}

// Takes so long while the process runs: what passes while it is stopped counts for little.
void BeLate() {
  for (absl::Duration left = kLate; left > absl::ZeroDuration(); left -= kLateSlice) {
    absl::SleepFor(kLateSlice);
  }
}

// `fault` strikes this process amid the step.
absl::Status Step(World& world, absl::string_view fault = "") {
  return world.Run([&](Rank& rank) {
    if (fault == "late") BeLate();
    if (fault == "hangs_amid") Hangs() = true;
    if (fault == "stops" && rank.rank() == 0) raise(SIGSTOP);
    return world.rail(rank.rank())->Exchange(rank, std::vector<RailPart>(world.num_nodes()));
  });
}

[[noreturn]] void StayForEver() {
  while (true) pause();
}

std::string Since(absl::Time start) {
  return absl::StrCat(" after ms ", absl::ToInt64Milliseconds(absl::Now() - start), ": ");
}

int Main(int timeout_ms, RailTransport transport) {
  const std::string name = absl::StrCat("node ", Process());
  const Fault& fault = TheFault();
  Say(absl::StrCat(name, " pid ", getpid()));
  if (fault.name == "absent_own") {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  }
  if (fault.name.starts_with("absent") && fault.mine) StayForEver();
  if (transport == RailTransport::kNccl) LoadFakeNccl();
  WorldOptions options = {
      .node = {.num_ranks = 2, .timeout = absl::Milliseconds(timeout_ms), .on_failure = nullptr},
      .transport = transport};
  if (fault.name.starts_with("absent") || fault.name.starts_with("hangs")) {
    options.arrival_timeout = kArrivalTimeout;
  }
  if (fault.name.starts_with("hangs")) options.node.on_failure = PrintFailure;
  if (fault.name == "stays") {
    options.arrival_timeout = kEndTimeout;
    options.node.on_failure = PrintFailure;
  }
  absl::Time start = absl::Now();
  absl::StatusOr<std::unique_ptr<World>> world = World::Create(options);
  if (!world.ok()) {
    Say(absl::StrCat(name, " is not created", Since(start), world.status().ToString()));
    Say(absl::StrCat(name, " again: ", World::Create(options).status().ToString()));
    return 1;
  }
  absl::Status status;
  for (int step = 1; status.ok(); ++step) {
    start = absl::Now();
    const bool strikes = step == 21 && fault.mine;
    if (strikes && fault.name == "stops_between") {
      raise(SIGSTOP);
      BeLate();
    }
    status = Step(**world, strikes ? fault.name : "");
    if (step == 20) {
      IsSlow() = fault.name == "slow";
      Hangs() = fault.name == "hangs" && fault.mine;
      Say(absl::StrCat(name, " goes"));
    }
    if (!status.ok()) {
      Say(absl::StrCat(name, " failed", Since(start), status.ToString()));
    } else if ((fault.name == "stays" || fault.name == "late") && step == kStepsBeforeTheEnd) {
      start = absl::Now();
      world->reset();
      Say(absl::StrCat(name, " ends", Since(start), "OK"));
      return 0;
    }
  }
  Say(absl::StrCat(name, " then: ", Step(**world).ToString()));
  world->reset();
  Say(absl::StrCat(name, " ends"));
  return 3;
}

}  // namespace
}  // namespace octet

// The calls of MPI that a fault changes, which MPI lets a program define.
extern "C" {

int MPI_Finalize() {
  if (octet::TheFault().name == "stays" && octet::TheFault().mine) octet::StayForEver();
  return PMPI_Finalize();
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
                MPI_Status* status) {
  if (octet::IsSlow()) absl::SleepFor(octet::kSlowProbe);
  if (octet::Hangs()) octet::StayForEver();
  return PMPI_Improbe(source, tag, comm, flag, message, status);
}

}  // extern "C"

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) return 2;
  int timeout_ms = 0;
  int victim = -1;
  const auto transport = octet::ParseEnum<octet::RailTransport>("TRANSPORT", argv[2]);
  if (!transport.ok() || !absl::SimpleAtoi(argv[1], &timeout_ms)) return 2;
  if (argc == 5) {
    if (!absl::SimpleAtoi(argv[4], &victim)) return 2;
    const octet::Fault fault = {.name = argv[3], .mine = victim == octet::Process()};
    octet::TheFault(&fault);
  }
  return octet::Main(timeout_ms, *transport);
}
