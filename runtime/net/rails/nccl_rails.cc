#include "runtime/net/rails/nccl_rails.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/node.h"
#include "runtime/base/backoff.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/node_memory.h"
#include "runtime/net/outcome.h"
#include "runtime/net/pack.h"
#include "runtime/net/progress.h"
#include "runtime/net/rails/nccl_communicator.h"
#include "runtime/net/rails/nccl_library.h"
#include "runtime/net/rails/numbered_exchange.h"
#include "runtime/net/rails/rail.h"
#include "runtime/net/rails/rails.h"
#include "runtime/net/rails/staged_rail.h"
#include "runtime/node/capture.h"
#include "runtime/node/capture_need.h"
#include "runtime/node/node_client.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

// How often the watching thread looks at the exchanges.
constexpr absl::Duration kLook = absl::Milliseconds(1);
// The most that one look counts for, however long the thread has not run before it.
constexpr absl::Duration kCounted = absl::Milliseconds(50);
// It asks the library for errors of an exchange that has taken so long.
constexpr absl::Duration kSlow = absl::Milliseconds(20);
// How long the memory of aborted communicators may take to be freed.
constexpr absl::Duration kFreeing = absl::Seconds(10);
// How long the library's kernels may take to end after their communicator has been aborted.
constexpr absl::Duration kEndOfKernels = absl::Seconds(5);

template <typename T>
T Load(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}

absl::Duration Since(Clock::time_point start) { return absl::FromChrono(Clock::now() - start); }

class NcclRails;

class NcclRail : public Rail {
 public:
  NcclRail(NcclRails& rails, int rank, const NcclLibrary& library)
      : rails_(rails), rank_(rank), communicator_(library) {}

  // Rail
  int node() const override;
  int num_nodes() const override;
  absl::Status Reserve(size_t send_bytes, size_t recv_bytes) override;
  int compute_units() const override { return NcclCommunicator::kMaxBlocks; }
  void Wake() override;
  absl::Status ExchangeOn(GpuStream stream, Rank& rank, absl::Span<const RailPart> parts) override;
  absl::Status ExchangeCounts(Rank& rank, absl::Span<const int32_t> sent,
                              absl::Span<int32_t> received) override;

  // Allocates, and loads kernels. On the rank's thread.
  absl::Status Start(Rank& rank, NodeMemory& memory);
  // Joins the communicator of `id` and exchanges headers, so that all pairs are connected.
  // Likewise.
  absl::Status Connect(Rank& rank, const ncclUniqueId& id, absl::Duration limit);
  // Any thread.
  void Abort();
  void AwaitAborted(absl::Duration limit) { communicator_.AwaitAborted(limit); }
  // Whether Connect has left a kernel behind that did not end when it was aborted.
  bool stuck() const { return stuck_; }

  // For the watching thread: aborts an exchange that has failed or has taken too long. Forget is to
  // be called before the first.
  void Watch(Clock::time_point now, absl::Duration slept);
  void Forget() { watched_ = {}; }

 private:
  // The exchange in progress, as the watching thread has seen it.
  struct Watched {
    uint64_t number = 0;
    Clock::time_point since;
    bool asked = false;
  };

  absl::Status Check(const Rank& rank, absl::Span<const RailPart> parts) const;
  device::ExchangeParams ParamsOf(int first) const;
  // `sizes`: of each node.
  absl::Status EnqueueBegin(absl::Span<const ExchangeSize> sizes, hipStream_t stream) const;
  absl::Status EnqueueEnd(absl::Span<const ExchangeSize> sizes, hipStream_t stream) const;
  // Enqueues the headers and `parts`, if there are any.
  absl::Status EnqueueTransfers(absl::Span<const RailPart> parts, hipStream_t stream,
                                absl::FunctionRef<bool()> go_on);
  bool IsStopped() const { return Load(*port_.abort_word) != 0; }

  NcclRails& rails_;
  const int rank_;
  NcclCommunicator communicator_;
  ExchangeSize room_;
  device::FailurePort port_ = {};
  absl::Span<device::ExchangeState> state_;  // one, in the GPU's memory, as are
  absl::Span<device::ExchangeHeader> sent_;  // [node]
  absl::Span<device::ExchangeHeader> came_;  // [node]
  absl::Span<device::ExchangeWatch> watch_;  // one, in pinned memory
  Watched watched_;
  std::atomic<bool> stuck_{false};
};

class NcclRails final : public Rails {
 public:
  NcclRails(Node& node, Progress& progress, const NcclLibrary& library,
            std::unique_ptr<StagedRails> counts);
  ~NcclRails() override;

  // Makes what needs no other node.
  absl::Status Start();
  // Collective. `mine`: whether this node has come so far.
  absl::Status Connect(const absl::Status& mine, absl::Duration limit);

  // Rails
  RailTransport transport() const override { return RailTransport::kNccl; }
  Rail& rail(int rank) const override { return *rails_[rank]; }
  void SetNames(std::vector<std::string> names) override;
  void SetOpen(bool open) override;
  std::string Report() const override { return counts_->Report(); }
  absl::Status Realign(absl::Span<const std::string> reports, absl::Duration limit) override;
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;

 private:
  friend class NcclRail;

  void Loop();
  void AbortAll();
  // Returns how long a node may take to leave kernels behind that do not end.
  absl::Duration LeavingKernels() const;
  // Makes an id for each rank, to be used by all nodes.
  absl::StatusOr<std::vector<std::string>> MakeIds() const;
  // Connects all ranks and returns the first error.
  absl::Status ConnectRanks(absl::Span<const std::string> ids, absl::Duration limit);

  const NcclLibrary& library_;
  const std::unique_ptr<StagedRails> counts_;  // carries ExchangeCounts
  std::unique_ptr<NodeMemory> memory_;
  std::vector<std::unique_ptr<NcclRail>> rails_;  // by rank

  Mutex watch_mutex_;
  CondVar watch_changed_;
  bool watching_ ABSL_GUARDED_BY(watch_mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(watch_mutex_) = false;
  std::thread watcher_;
};

// ---- NcclRail

int NcclRail::node() const { return rails_.progress_.node(); }
int NcclRail::num_nodes() const { return rails_.progress_.num_nodes(); }

absl::Status NcclRail::Reserve(size_t send_bytes, size_t recv_bytes) {
  // Nothing is staged; the sum of all calls' promises is what may be exchanged.
  room_ = {.send = std::max(room_.send, send_bytes), .recv = std::max(room_.recv, recv_bytes)};
  return absl::OkStatus();
}

absl::Status NcclRail::Start(Rank& rank, NodeMemory& memory) {
  const auto nodes = static_cast<size_t>(num_nodes());
  port_ = NodeClient::PortOf(rank, rails_.client_);
  OCTET_ASSIGN_OR_RETURN(state_, memory.Device<device::ExchangeState>(1));
  OCTET_ASSIGN_OR_RETURN(sent_, memory.Device<device::ExchangeHeader>(nodes));
  OCTET_ASSIGN_OR_RETURN(came_, memory.Device<device::ExchangeHeader>(nodes));
  OCTET_ASSIGN_OR_RETURN(watch_, memory.Pinned<device::ExchangeWatch>(1));
  watch_.front() = {};
  return OCTET_GPU(device::LoadExchangeKernels());
}

absl::Status NcclRail::Connect(Rank& rank, const ncclUniqueId& id, absl::Duration limit) {
  const Clock::time_point start = Clock::now();
  const auto go_on = [&] { return rails_.progress_.broken().ok() && Since(start) < limit; };
  const hipStream_t stream = rank.stream();
  const size_t header_bytes = sent_.size() * sizeof(device::ExchangeHeader);
  watch_.front() = {};
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(state_.data(), 0, sizeof(*state_.data()), stream));
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(sent_.data(), 0, header_bytes, stream));
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(came_.data(), 0, header_bytes, stream));
  OCTET_RETURN_IF_ERROR(
      communicator_.Connect({.num_nodes = num_nodes(), .node = node(), .id = id}, go_on));
  absl::Status status = EnqueueTransfers({}, stream, go_on);
  Backoff backoff(Backoff::Cores::kShared);
  std::optional<Clock::time_point> aborted;
  while (hipStreamQuery(stream) == hipErrorNotReady) {
    (void)hipGetLastError();  // "not ready" counts as an error on some platforms
    if (status.ok()) status = communicator_.AsyncError();
    if (status.ok() && !go_on()) {
      status = absl::CancelledError("the first exchange of the communicator has not ended");
    }
    if (!status.ok() && !aborted.has_value()) {
      Abort();  // ends what the stream waits for
      aborted = Clock::now();
    }
    if (aborted.has_value() && Since(*aborted) > kEndOfKernels) {
      stuck_ = true;
      return WithMessage(
          status, absl::StrCat(status.message(), "; a kernel of ", NcclName(),
                               " has not ended either ", WaitText(kEndOfKernels),
                               " after ncclCommAbort: this process cannot use the GPU any more, "
                               "end it"));
    }
    backoff.Wait();
  }
  (void)hipGetLastError();
  return status;
}

void NcclRail::Abort() {
  if (!watch_.empty()) {
    std::atomic_ref<uint32_t>(watch_.front().aborted).store(1, std::memory_order_release);
  }
  communicator_.Abort();
}

absl::Status NcclRail::EnqueueTransfers(absl::Span<const RailPart> parts, hipStream_t stream,
                                        absl::FunctionRef<bool()> go_on) {
  std::vector<NcclTransfer> transfers;
  for (int other = 0; other < num_nodes(); ++other) {
    if (other == node()) continue;
    transfers.push_back({other, &sent_[other], sizeof(device::ExchangeHeader), &came_[other],
                         sizeof(device::ExchangeHeader)});
    for (size_t i = static_cast<size_t>(other); i < parts.size();
         i += static_cast<size_t>(num_nodes())) {
      const RailPart& part = parts[i];
      transfers.push_back({other, part.send, part.send_bytes, part.recv, part.recv_bytes});
    }
  }
  return communicator_.Enqueue(transfers, stream, go_on);
}

absl::Status NcclRail::Check(const Rank& rank, absl::Span<const RailPart> parts) const {
  OCTET_RETURN_IF_ERROR(rails_.CheckExchange(rank_, rank, parts));
  return CheckRoom(SumOf(SizesOf(parts, num_nodes(), node())), room_);
}

device::ExchangeParams NcclRail::ParamsOf(int first) const {
  return {.state = state_.data(),
          .watch = watch_.data(),
          .num_nodes = num_nodes(),
          .node = node(),
          .first = first,
          .bytes = {}};
}

absl::Status NcclRail::EnqueueBegin(absl::Span<const ExchangeSize> sizes,
                                    hipStream_t stream) const {
  for (int first = 0; first < num_nodes(); first += device::kNodesOfLaunch) {
    device::BeginExchangeParams params = {.exchange = ParamsOf(first), .headers = sent_.data()};
    const int end = std::min(first + device::kNodesOfLaunch, num_nodes());
    for (int other = first; other < end; ++other) {
      params.exchange.bytes[other - first] = sizes[static_cast<size_t>(other)].send;
    }
    OCTET_RETURN_IF_GPU_ERROR(device::LaunchBeginExchange(params, stream));
  }
  return absl::OkStatus();
}

absl::Status NcclRail::EnqueueEnd(absl::Span<const ExchangeSize> sizes, hipStream_t stream) const {
  for (int first = 0; first < num_nodes(); first += device::kNodesOfLaunch) {
    device::EndExchangeParams params = {
        .exchange = ParamsOf(first), .headers = came_.data(), .port = port_};
    const int end = std::min(first + device::kNodesOfLaunch, num_nodes());
    for (int other = first; other < end; ++other) {
      params.exchange.bytes[other - first] = sizes[static_cast<size_t>(other)].recv;
    }
    OCTET_RETURN_IF_GPU_ERROR(device::LaunchEndExchange(params, stream));
  }
  return absl::OkStatus();
}

absl::Status NcclRail::ExchangeOn(GpuStream stream, Rank& rank, absl::Span<const RailPart> parts) {
  OCTET_RETURN_IF_ERROR(Check(rank, parts));
  if (num_nodes() == 1) return absl::OkStatus();
  if (IsCapturing(stream)) CaptureNeeds::Add(rank, communicator_.NeedOfCapture());
  const Clock::time_point start = Clock::now();
  bool late = false;
  const auto go_on = [&] {
    late = Since(start) > rails_.node_->timeout();
    return !late && !IsStopped();
  };
  const std::vector<ExchangeSize> sizes = SizesOf(parts, num_nodes(), node());
  OCTET_RETURN_IF_ERROR(EnqueueBegin(sizes, stream));
  const absl::Status enqueued =
      rank.LaunchWaiting([&] { return EnqueueTransfers(parts, stream, go_on); });
  if (late) {
    return absl::DeadlineExceededError(absl::StrCat(
        kExchangePhase, " waited ", WaitText(Since(start)), " for ", NcclName(), " to enqueue it"));
  }
  // An error of the library may have been noticed here or, later, by Watch: it is the same.
  if (absl::IsInternal(enqueued)) {
    return absl::AbortedError(absl::StrCat(kExchangePhase, ": ", enqueued.message()));
  }
  OCTET_RETURN_IF_ERROR(enqueued);
  return EnqueueEnd(sizes, stream);
}

void NcclRail::Wake() {
  if (num_nodes() == 1) return;
  communicator_.Wake();
  rails_.counts_->rail(rank_).Wake();
}

absl::Status NcclRail::ExchangeCounts(Rank& rank, absl::Span<const int32_t> sent,
                                      absl::Span<int32_t> received) {
  return rails_.counts_->rail(rank_).ExchangeCounts(rank, sent, received);
}

void NcclRail::Watch(Clock::time_point now, absl::Duration slept) {
  if (IsStopped()) {
    Abort();
    return;
  }
  const uint64_t begun = Load(watch_.front().begun);
  if (begun != watched_.number || Load(watch_.front().ended) >= begun) {
    watched_ = {.number = begun, .since = now, .asked = false};
    return;
  }
  // A thread that has not run for a while cannot tell whether others have.
  watched_.since += absl::ToChronoNanoseconds(slept);
  const absl::Duration waited = absl::FromChrono(now - watched_.since);
  if (waited > rails_.node_->timeout()) {
    Abort();  // the end of the exchange fails the Run
  } else if (waited > kSlow) {
    const absl::Status error = communicator_.AsyncError();
    if (error.ok()) return;
    // Of another node that has failed, perhaps, and then its error is the cause.
    NodeClient::Release(*rails_.node_,
                        WithRank(rank_, absl::AbortedError(absl::StrCat(kExchangePhase, " ", begun,
                                                                        ": ", error.message()))));
    Abort();
  }
}

// ---- NcclRails

NcclRails::NcclRails(Node& node, Progress& progress, const NcclLibrary& library,
                     std::unique_ptr<StagedRails> counts)
    : Rails(node, progress),
      library_(library),
      counts_(std::move(counts)),
      memory_(std::make_unique<NodeMemory>(node)) {
  for (int rank = 0; rank < node.num_ranks(); ++rank) {
    rails_.push_back(std::make_unique<NcclRail>(*this, rank, library));
  }
}

NcclRails::~NcclRails() {
  for (const auto& rail : rails_) rail->Abort();  // all at once
  if (watcher_.joinable()) {
    {
      MutexLock lock(&watch_mutex_);
      stop_ = true;
      watch_changed_.SignalAll();
    }
    watcher_.join();
  }
}

absl::Status NcclRails::Start() {
  OCTET_RETURN_IF_ERROR(
      node_->Run([&](Rank& rank) { return rails_[rank.rank()]->Start(rank, *memory_); }));
  // The standard library reports by exceptions only.
  try {
    watcher_ = std::thread([this] { Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread for NCCL: ", error.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> NcclRails::MakeIds() const {
  std::vector<std::string> ids;
  for (size_t rank = 0; rank < rails_.size(); ++rank) {
    ncclUniqueId id = {};
    OCTET_RETURN_IF_ERROR(library_.ToStatus(library_.get_unique_id(&id), "ncclGetUniqueId"));
    ids.emplace_back(id.internal, sizeof(id.internal));
  }
  return ids;
}

absl::Status NcclRails::Connect(const absl::Status& mine, absl::Duration limit) {
  if (progress_.num_nodes() == 1) return mine;
  absl::StatusOr<std::vector<std::string>> ids = std::vector<std::string>();
  if (!mine.ok()) {
    ids = mine;
  } else if (progress_.node() == 0) {
    ids = MakeIds();
  }
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<std::string> told,
      progress_.Gather("the exchange of NCCL's ids",
                       Pack({PackStatus(ids.status()), ids.ok() ? Pack(*ids) : ""}), limit));
  std::vector<absl::Status> outcomes;
  std::vector<std::string> ids_of_first;
  for (const std::string& theirs : told) {
    std::vector<std::string> fields = Unpack(theirs).value_or(std::vector<std::string>());
    fields.resize(2);
    outcomes.push_back(UnpackStatus(fields[0]));
    if (outcomes.size() == 1) ids_of_first = Unpack(fields[1]).value_or(std::vector<std::string>());
  }
  OCTET_RETURN_IF_ERROR(CauseOf(outcomes));
  // The others take as long as this node at most, from when the last of them has begun.
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<std::string> connected,
      progress_.Gather("connecting with NCCL", PackStatus(ConnectRanks(ids_of_first, limit)),
                       2 * limit + LeavingKernels()));
  outcomes.clear();
  for (const std::string& theirs : connected) outcomes.push_back(UnpackStatus(theirs));
  absl::Status cause = CauseOf(outcomes);
  if (!cause.ok()) AbortAll();
  return cause;
}

absl::Status NcclRails::ConnectRanks(absl::Span<const std::string> ids, absl::Duration limit) {
  if (ids.size() != rails_.size()) return absl::InternalError("NCCL's ids cannot be read");
  std::vector<absl::Status> statuses(rails_.size());
  absl::Status run = node_->Run([&](Rank& rank) {
    ncclUniqueId id = {};
    const std::string& bytes = ids[rank.rank()];
    std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof(id.internal)));
    const absl::Status connected = rails_[rank.rank()]->Connect(rank, id, limit);
    statuses[rank.rank()] = connected;
    // This is no failure of the node, but for a stream that never becomes idle.
    return rails_[rank.rank()]->stuck() ? connected : absl::OkStatus();
  });
  // First what has left the GPU unusable: it is why the node fails.
  for (const bool stuck : {true, false}) {
    for (size_t rank = 0; rank < statuses.size(); ++rank) {
      if (statuses[rank].ok() || rails_[rank]->stuck() != stuck) continue;
      return absl::UnavailableError(
          absl::StrCat("rank ", rank, ": ", NcclName(), ": ", statuses[rank].message()));
    }
  }
  return run;
}

void NcclRails::AbortAll() {
  for (const auto& rail : rails_) rail->Abort();
  const Clock::time_point start = Clock::now();
  for (const auto& rail : rails_) {
    // Freeing waits for kernels.
    const absl::Duration limit = rail->stuck() ? absl::ZeroDuration() : kFreeing - Since(start);
    rail->AwaitAborted(std::max(limit, absl::ZeroDuration()));
  }
}

absl::Duration NcclRails::LeavingKernels() const {
  // Then Node::Run waits for the rank's stream once more (NodeOptions::timeout).
  return kEndOfKernels + 2 * node_->timeout() + absl::Seconds(5);
}

absl::Status NcclRails::Realign(absl::Span<const std::string> reports, absl::Duration limit) {
  AbortAll();
  OCTET_RETURN_IF_ERROR(counts_->Realign(reports, limit));
  return Connect(absl::OkStatus(), limit);
}

absl::Status NcclRails::Describe(int rank, const device::FailureRecord& record) const {
  const std::string other = absl::StrCat(kExchangePhase, ": node ", record.index, " ");
  const NodeFailure mismatch = RecordedFailure(rank, record, kExchangePhase, "the header of node");
  switch (record.site) {
    case device::kHeaderArrival:
      return DescribeWait(rank, record, absl::StrCat("seen ", record.seen));
    case device::kPartArrival:
      return DescribeWait(rank, record, "of which not all bytes have come");
    case device::kNumberCheck:
      return WithFailure(mismatch, absl::InvalidArgumentError(absl::StrCat(
                                       other, "has come to exchange ", record.seen, ", node ",
                                       progress_.node(), " to ", record.expected)));
    default:
      return WithFailure(mismatch, absl::InvalidArgumentError(absl::StrCat(
                                       other, "has sent ", record.seen, " bytes, node ",
                                       progress_.node(), " expects ", record.expected)));
  }
}

void NcclRails::SetNames(std::vector<std::string> names) {
  counts_->SetNames(names);
  Rails::SetNames(std::move(names));
}

void NcclRails::SetOpen(bool open) {
  counts_->SetOpen(open);
  {
    MutexLock lock(&watch_mutex_);
    if (open) {
      for (const auto& rail : rails_) rail->Forget();
    }
    watching_ = open;
    watch_changed_.SignalAll();
  }
  Rails::SetOpen(open);
}

void NcclRails::Loop() {
  MutexLock lock(&watch_mutex_);
  Clock::time_point last = Clock::now();
  while (!stop_) {
    if (!watching_) {
      watch_changed_.Wait(&watch_mutex_);
      last = Clock::now();
      continue;
    }
    const Clock::time_point now = Clock::now();
    const absl::Duration since = absl::FromChrono(now - last);
    last = now;
    // SetOpen(false) waits for this, so that a Run's end is the end of its watch.
    for (const auto& rail : rails_) {
      rail->Watch(now, std::max(since - kCounted, absl::ZeroDuration()));
    }
    watch_changed_.WaitFor(&watch_mutex_, kLook);
  }
}

}  // namespace

absl::StatusOr<std::string> NcclVersion() {
  OCTET_ASSIGN_OR_RETURN(const NcclLibrary* library, NcclLibrary::Load());
  return library->Version();
}

absl::StatusOr<std::unique_ptr<Rails>> MakeNcclRails(Node& node, Progress& progress,
                                                     absl::Duration limit) {
  OCTET_ASSIGN_OR_RETURN(const NcclLibrary* library, NcclLibrary::Load());
  absl::StatusOr<std::unique_ptr<StagedRails>> counts = StagedRails::Create(node, progress);
  absl::Status mine = counts.status();
  auto rails = std::make_unique<NcclRails>(node, progress, *library,
                                           mine.ok() ? *std::move(counts) : nullptr);
  if (mine.ok()) mine = rails->Start();
  OCTET_RETURN_IF_ERROR(rails->Connect(mine, limit));
  return rails;
}

}  // namespace octet
