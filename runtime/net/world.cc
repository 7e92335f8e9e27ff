#include "octet/world.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/net/outcome.h"
#include "runtime/net/pack.h"
#include "runtime/net/progress.h"
#include "runtime/net/rails/nccl_rails.h"
#include "runtime/net/rails/rail.h"
#include "runtime/net/rails/rails.h"
#include "runtime/net/rails/staged_rail.h"
#include "runtime/net/transport.h"
#include "runtime/node/node_client.h"
#include "runtime/node/rank_threads.h"

namespace octet {
namespace {

constexpr absl::Duration kDefaultArrivalTimeout = absl::Minutes(1);

// Processes of a busy machine are silent for tens of milliseconds, however short the deadlines are.
constexpr absl::Duration kLeastSilence = absl::Seconds(1);

// Whether RailTransport::kAuto takes NCCL: on GPUs.
constexpr bool kPrefersNccl = absl::string_view(OCTET_PLATFORM_NAME) != "emulation";

// What the nodes tell each other first.
enum Field : size_t {
  kVersion,
  kPlatform,
  kRanks,
  kTimeout,
  kTransport,
  kStarted,  // Status
  kName,
  kNccl,  // Status
  kNcclVersion,
  kFields,
};

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::vector<absl::Status> UnpackStatuses(const std::vector<std::string>& packed) {
  std::vector<absl::Status> statuses;
  for (const std::string& theirs : packed) statuses.push_back(UnpackStatus(theirs));
  return statuses;
}

}  // namespace

class World::Impl : public Progress::Listener {
 public:
  explicit Impl(const WorldOptions& options);
  ~Impl() override;

  absl::Status Start();
  absl::Status Agree(absl::string_view what, absl::string_view value);
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes);
  absl::Status Together(const absl::Status& mine);
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body);

  const Progress& progress() const { return *progress_; }
  Node& node() const { return *node_; }
  Rail& rail(int rank) const { return rails_->rail(rank); }
  RailTransport transport() const { return rails_->transport(); }

  // Progress::Listener
  void OnNodeFailed(int node, uint64_t run, const absl::Status& failure) override;
  void OnExchangeFailed(const absl::Status& failure) override;
  void OnBroken(const absl::Status& reason) override;

 private:
  absl::Status StartNode();
  absl::Status StartRails(const TransportOffers& offers);
  // Returns an error if no collective call may be made now.
  absl::Status CheckUsable() const;
  // Runs the body on this node, until it ends or `release_` is set.
  absl::Status RunNode(absl::FunctionRef<absl::Status(Rank&)> body);
  // Exchanges results of a Run and returns the cause, after realigning the rails.
  absl::Status Conclude(const absl::Status& mine);
  // Ends what this node does in the current Run because of a failure elsewhere.
  void Release(const absl::Status& why);
  // The on_failure of the node.
  void OnFailure(const absl::Status& failure);

  const WorldOptions options_;
  absl::Duration arrival_timeout_;
  Progress::Pointer progress_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<Rails> rails_;
  std::vector<std::string> names_;  // by node

  Mutex mutex_;
  uint64_t run_ ABSL_GUARDED_BY(mutex_) = 0;      // the number of Runs begun, the same on all nodes
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // the node executes the Run
  absl::Status release_ ABSL_GUARDED_BY(mutex_);  // why the Run must end; OK: it need not
};

World::Impl::Impl(const WorldOptions& options)
    : options_(options),
      // A negative one is refused, in StartNode, when all processes have come.
      arrival_timeout_(options.arrival_timeout <= absl::ZeroDuration() ? kDefaultArrivalTimeout
                                                                       : options.arrival_timeout) {}

World::Impl::~Impl() {
  if (progress_ == nullptr) return;
  // An error says that others are gone, which they have been told already.
  if (progress_->broken().ok()) static_cast<void>(progress_->Finish(arrival_timeout_));
  const absl::Status stopped = progress_->Stop();
  rails_.reset();
  node_.reset();
  if (!stopped.ok() && options_.node.on_failure != nullptr) options_.node.on_failure(stopped);
}

// ---- starting

absl::Status World::Impl::StartNode() {
  if (options_.arrival_timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("WorldOptions::arrival_timeout is ",
                                                   absl::FormatDuration(options_.arrival_timeout),
                                                   "; it must not be negative"));
  }
  NodeOptions node_options = options_.node;
  node_options.on_failure = [this](const absl::Status& failure) { OnFailure(failure); };
  OCTET_ASSIGN_OR_RETURN(node_, Node::Create(node_options));
  return absl::OkStatus();
}

absl::Status World::Impl::Start() {
  OCTET_ASSIGN_OR_RETURN(progress_, Progress::Start(this, arrival_timeout_));
  const absl::Status started = options_.prepared.ok() ? StartNode() : options_.prepared;
  const bool may_use_nccl = options_.transport == RailTransport::kNccl ||
                            (options_.transport == RailTransport::kAuto && kPrefersNccl);
  const absl::StatusOr<std::string> nccl =
      may_use_nccl ? NcclVersion() : absl::StatusOr<std::string>("");
  std::vector<std::string> mine(kFields);
  mine[kVersion] = OCTET_VERSION;
  mine[kPlatform] = OCTET_PLATFORM_NAME;
  mine[kTransport] = std::string(EnumName(options_.transport));
  if (node_ != nullptr) {
    mine[kRanks] = absl::StrCat(node_->num_ranks());
    mine[kTimeout] = absl::FormatDuration(node_->timeout());
  }
  mine[kStarted] = PackStatus(started);
  mine[kName] = absl::StrCat("host ", HostName(), ", process ", getpid());
  mine[kNccl] = PackStatus(nccl.status());
  mine[kNcclVersion] = nccl.value_or("");
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> packed,
                         progress_->Gather("World::Create", Pack(mine), arrival_timeout_));

  std::vector<std::vector<std::string>> values(kFields);  // [field][node]
  for (const std::string& theirs : packed) {
    std::vector<std::string> fields = Unpack(theirs).value_or(std::vector<std::string>());
    fields.resize(kFields);
    for (size_t i = 0; i < kFields; ++i) values[i].push_back(fields[i]);
  }
  OCTET_RETURN_IF_ERROR(CheckSame("the version of Octet", values[kVersion]));
  OCTET_RETURN_IF_ERROR(CauseOf(UnpackStatuses(values[kStarted])));
  OCTET_RETURN_IF_ERROR(CheckSame("the platform", values[kPlatform]));
  OCTET_RETURN_IF_ERROR(CheckSame("the number of ranks", values[kRanks]));
  OCTET_RETURN_IF_ERROR(CheckSame("the timeout", values[kTimeout]));
  OCTET_RETURN_IF_ERROR(CheckSame("WorldOptions::transport", values[kTransport]));
  std::vector<std::string> names;
  for (int node = 0; node < progress_->num_nodes(); ++node) {
    names.push_back(absl::StrCat("node ", node, " (", values[kName][node], ")"));
  }
  names_ = names;
  progress_->WatchNodes(std::max(node_->timeout(), kLeastSilence), names);
  return StartRails({UnpackStatuses(values[kNccl]), values[kNcclVersion]});
}

absl::Status World::Impl::StartRails(const TransportOffers& offers) {
  const bool prefers_nccl = kPrefersNccl && progress_->num_nodes() > 1;
  OCTET_ASSIGN_OR_RETURN(RailTransport transport,
                         ChooseTransport(options_.transport, prefers_nccl, offers));
  if (transport == RailTransport::kNccl) {
    absl::StatusOr<std::unique_ptr<Rails>> made =
        MakeNcclRails(*node_, *progress_, arrival_timeout_);
    if (made.ok()) {
      rails_ = *std::move(made);
    } else if (options_.transport == RailTransport::kNccl || !progress_->broken().ok()) {
      return made.status();
    }
  }
  if (rails_ == nullptr) {
    absl::StatusOr<std::unique_ptr<StagedRails>> made = StagedRails::Create(*node_, *progress_);
    OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> packed,
                           progress_->Gather("the rails of World::Create",
                                             PackStatus(made.status()), arrival_timeout_));
    OCTET_RETURN_IF_ERROR(CauseOf(UnpackStatuses(packed)));
    rails_ = *std::move(made);
  }
  rails_->SetNames(names_);
  return absl::OkStatus();
}

// ---- collective calls

absl::Status World::Impl::CheckUsable() const {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("a collective call of the World was"));
  const absl::Status broken = progress_->broken();
  if (broken.ok()) return absl::OkStatus();
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat("the World has to be started again, all ", progress_->num_nodes(),
                   " processes of it: ", broken.message()));
  return IsLostNode(broken) ? WithLostNode(std::move(status)) : status;
}

absl::Status World::Impl::Agree(absl::string_view what, absl::string_view value) {
  OCTET_RETURN_IF_ERROR(CheckUsable());
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> values,
                         progress_->Gather(absl::StrCat("World::Agree on ", what),
                                           std::string(value), arrival_timeout_));
  return CheckSame(what, values);
}

absl::StatusOr<std::vector<std::string>> World::Impl::AllGather(absl::string_view bytes) {
  OCTET_RETURN_IF_ERROR(CheckUsable());
  return progress_->Gather("World::AllGather", std::string(bytes), arrival_timeout_);
}

absl::Status World::Impl::Together(const absl::Status& mine) {
  OCTET_RETURN_IF_ERROR(CheckUsable());
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> packed,
                         progress_->Gather("World::Together", PackStatus(mine), arrival_timeout_));
  return CauseOf(UnpackStatuses(packed));
}

absl::Status World::Impl::Run(absl::FunctionRef<absl::Status(Rank&)> body) {
  OCTET_RETURN_IF_ERROR(CheckUsable());
  {
    MutexLock lock(&mutex_);
    ++run_;
    release_ = absl::OkStatus();
  }
  OCTET_RETURN_IF_ERROR(progress_->Gather("World::Run", "", arrival_timeout_).status());
  return Conclude(RunNode(body));
}

absl::Status World::Impl::RunNode(absl::FunctionRef<absl::Status(Rank&)> body) {
  {
    MutexLock lock(&mutex_);
    running_ = true;
  }
  rails_->SetOpen(true);
  absl::Status status = node_->Run([&](Rank& rank) {
    {
      // What is set after this finds a Run that NodeClient::Release can end.
      MutexLock lock(&mutex_);
      if (!release_.ok()) return WithMessage(release_, release_.message());
    }
    return body(rank);
  });
  rails_->SetOpen(false);
  MutexLock lock(&mutex_);
  running_ = false;
  return status;
}

absl::Status World::Impl::Conclude(const absl::Status& mine) {
  // The other nodes may still be at work for any time.
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<std::string> packed,
      progress_->Gather("the end of World::Run", Pack({PackStatus(mine), rails_->Report()}),
                        absl::InfiniteDuration()));
  std::vector<absl::Status> outcomes;
  std::vector<std::string> reports;
  for (const std::string& theirs : packed) {
    std::vector<std::string> fields = Unpack(theirs).value_or(std::vector<std::string>());
    fields.resize(2);
    outcomes.push_back(UnpackStatus(fields[0]));
    reports.push_back(fields[1]);
  }
  absl::Status cause = CauseOf(outcomes);
  if (cause.ok()) return cause;
  if (const absl::Status aligned = rails_->Realign(reports, arrival_timeout_); !aligned.ok()) {
    progress_->Break(
        WithMessage(aligned, absl::StrCat("the rails have not come up again after '",
                                          FirstLine(cause), "': ", aligned.message())));
    return progress_->broken();
  }
  // All nodes return the cause, or none does. A process that went on after it had been stopped may
  // have everything that the others sent, and learns only here that they have given it up.
  OCTET_RETURN_IF_ERROR(
      progress_->Gather("the return of World::Run", "", arrival_timeout_).status());
  return cause;
}

// ---- failures

void World::Impl::Release(const absl::Status& why) {
  const absl::Status released =
      absl::CancelledError(absl::StrCat("released, since ", FirstLine(why)));
  {
    MutexLock lock(&mutex_);
    if (!release_.ok()) return;
    release_ = WithMessage(released, released.message());
    if (!running_) return;
  }
  NodeClient::Release(*node_, released);
}

void World::Impl::OnNodeFailed(int node, uint64_t run, const absl::Status& failure) {
  {
    MutexLock lock(&mutex_);
    if (run != run_) return;  // the Run has ended here, too
  }
  Release(WithMessage(failure, absl::StrCat(names_[node], " has failed: ", failure.message())));
}

void World::Impl::OnExchangeFailed(const absl::Status& failure) {
  NodeClient::Release(*node_, failure);
}

void World::Impl::OnBroken(const absl::Status& reason) { Release(reason); }

void World::Impl::OnFailure(const absl::Status& failure) {
  uint64_t run = 0;
  bool announce = false;
  {
    MutexLock lock(&mutex_);
    run = run_;
    announce = running_ && release_.ok();
  }
  if (announce) progress_->Announce(run, failure);
  if (options_.node.on_failure == nullptr) return;
  options_.node.on_failure(
      WithMessage(failure, absl::StrCat("node ", progress_->node(), ": ", failure.message())));
}

// ---- World

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::~World() = default;

absl::StatusOr<std::unique_ptr<World>> World::Create(const WorldOptions& options) {
  auto world = std::unique_ptr<World>(new World(std::make_unique<Impl>(options)));
  OCTET_RETURN_IF_ERROR(world->impl_->Start());
  return world;
}

int World::num_nodes() const { return impl_->progress().num_nodes(); }
int World::node_index() const { return impl_->progress().node(); }
RailTransport World::transport() const { return impl_->transport(); }
int World::num_ranks() const { return num_nodes() * impl_->node().num_ranks(); }
Node& World::node() { return impl_->node(); }
Rail* World::rail(int local_rank) const { return &impl_->rail(local_rank); }

absl::Status World::Agree(absl::string_view what, absl::string_view value) {
  return impl_->Agree(what, value);
}
absl::StatusOr<std::vector<std::string>> World::AllGather(absl::string_view bytes) {
  return impl_->AllGather(bytes);
}
absl::Status World::Together(const absl::Status& mine) { return impl_->Together(mine); }
absl::Status World::Run(absl::FunctionRef<absl::Status(Rank&)> body) { return impl_->Run(body); }

}  // namespace octet
