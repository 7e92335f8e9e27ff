#include "octet/node.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "misuse.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/failure.h"
#include "runtime/failure/flag_table.h"
#include "runtime/node/caller.h"
#include "runtime/node/node_impl.h"

namespace octet {
namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(10);

absl::StatusOr<absl::Duration> TimeoutOf(const NodeOptions& options) {
  if (options.timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("NodeOptions::timeout is ", absl::FormatDuration(options.timeout),
                     "; it must not be negative, and 0 is the default"));
  }
  if (options.timeout > absl::ZeroDuration()) return options.timeout;
  const char* text = std::getenv("OCTET_TIMEOUT_MS");
  if (text == nullptr) return kDefaultTimeout;
  int64_t milliseconds = 0;
  if (!absl::SimpleAtoi(text, &milliseconds) || milliseconds <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("OCTET_TIMEOUT_MS is '", text, "': not a positive number of milliseconds"));
  }
  return absl::Milliseconds(milliseconds);
}

// Returns the topology of these devices alone, in their order. Each entry of one device is another
// share of it.
absl::StatusOr<Topology> Choose(const Topology& topology, absl::Span<const int> devices) {
  std::vector<size_t> chosen;
  for (const int device : devices) {
    size_t gpu = 0;
    while (gpu < topology.gpus.size() &&
           (topology.gpus[gpu].device != device || absl::c_linear_search(chosen, gpu))) {
      ++gpu;
    }
    if (gpu == topology.gpus.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "device ", device, " is none of the ", topology.gpus.size(),
          " GPUs here that ranks can have, or is named more often than it has shares"));
    }
    chosen.push_back(gpu);
  }
  Topology result = topology;
  result.gpus.clear();
  result.can_access.clear();
  for (const size_t gpu : chosen) {
    result.gpus.push_back(topology.gpus[gpu]);
    std::vector<bool>& access = result.can_access.emplace_back();
    for (const size_t peer : chosen) access.push_back(topology.can_access[gpu][peer]);
  }
  return result;
}

}  // namespace

void PrintFailure(const absl::Status& failure) {
  const std::string line = absl::StrCat("octet: ", FirstLine(failure), "\n");
  std::fputs(line.c_str(), stderr);
}

int Rank::num_ranks() const { return node_->num_ranks(); }

bool Rank::IsOf(const Node& node) const { return node_->impl_ == node.impl_; }

absl::Status Rank::Barrier(absl::string_view before) {
  return node_->impl_->barrier().Arrive(rank_, before, caller_);
}

absl::Status Rank::CoordinatedLaunch(absl::FunctionRef<absl::Status()> launch,
                                     absl::string_view call) {
  ++coordinated_launches_;
  OCTET_RETURN_IF_ERROR(Barrier(call));
  return LaunchWaiting(launch);
}

absl::Status Rank::LaunchWaiting(absl::FunctionRef<absl::Status()> launch) {
  OCTET_RETURN_IF_ERROR(launch());
  platform::KernelsWait(stream_);
  return absl::OkStatus();
}

absl::Status Rank::Synchronize() { return node_->impl_->Synchronize(*this); }

absl::Status Rank::WaitUntil(absl::FunctionRef<bool()> done, absl::string_view what) {
  return node_->impl_->WaitUntil(*this, done, what);
}

device::FailurePort NodeClient::PortOf(const Rank& rank, uint32_t id) {
  device::FailurePort port = rank.node_->impl_->failure_port(rank.rank_, id);
  if (rank.caller_ != 0) port.caller = rank.caller_;
  return port;
}

absl::Status Rank::EnqueueNodeBarrier() { return node_->impl_->EnqueueNodeBarrier(*this); }

absl::Status Rank::CheckComplete() const { return node_->impl_->CheckComplete(*this); }

absl::Status NodeClient::CheckComplete(const Rank& /*rank*/) const { return absl::OkStatus(); }
absl::Status NodeClient::CopyFlags(Rank& /*rank*/) { return absl::OkStatus(); }
std::vector<FlagTable> NodeClient::FlagTables(absl::Span<const device::FailureRecord> /*waits*/) {
  return {};
}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(const NodeOptions& options) {
  OCTET_ASSIGN_OR_RETURN(Topology topology, DiscoverTopology());
  return Make(std::move(topology), options, /*adopted=*/false);
}

absl::StatusOr<std::unique_ptr<Node>> Node::Adopt(absl::Span<const int> devices,
                                                  const NodeOptions& options) {
  const int num_ranks = static_cast<int>(devices.size());
  if (num_ranks == 0 || (options.num_ranks != 0 && options.num_ranks != num_ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Node::Adopt of ", num_ranks, " devices with NodeOptions::num_ranks ",
                     options.num_ranks, ": name a device for each rank"));
  }
  OCTET_ASSIGN_OR_RETURN(const Topology topology, DiscoverTopology());
  OCTET_ASSIGN_OR_RETURN(Topology chosen, Choose(topology, devices));
  NodeOptions of_all = options;
  of_all.num_ranks = num_ranks;
  return Make(std::move(chosen), of_all, /*adopted=*/true);
}

absl::StatusOr<std::unique_ptr<Node>> Node::Make(Topology topology, const NodeOptions& options,
                                                 bool adopted) {
  OCTET_ASSIGN_OR_RETURN(const absl::Duration timeout, TimeoutOf(options));
  int num_ranks = options.num_ranks;
  if (num_ranks == 0) num_ranks = std::min(static_cast<int>(topology.gpus.size()), kMaxRanks);
  if (num_ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ranks, " ranks asked for, ", kMaxRanks,
                     " are the most of a node; octet/world.h joins several nodes"));
  }
  OCTET_RETURN_IF_ERROR(topology.CheckRanks(num_ranks));

  NodeOptions chosen = options;
  chosen.num_ranks = num_ranks;
  chosen.timeout = timeout;
  auto node = std::unique_ptr<Node>(
      new Node(std::make_shared<Impl>(std::move(topology), std::move(chosen), adopted),
               /*owner=*/true));
  OCTET_RETURN_IF_ERROR(node->impl_->Start(*node));
  return node;
}

Node::Node(std::shared_ptr<Impl> impl, bool owner) : impl_(std::move(impl)), owner_(owner) {}

Node::~Node() {
  if (owner_) impl_->Stop();
}

std::shared_ptr<Node> Node::Share() const {
  return std::shared_ptr<Node>(new Node(impl_, /*owner=*/false));
}

int Node::num_ranks() const { return impl_->num_ranks(); }
const Topology& Node::topology() const { return impl_->topology(); }
absl::Duration Node::timeout() const { return impl_->timeout(); }

absl::Status Node::Run(absl::FunctionRef<absl::Status(Rank&)> body) { return impl_->Run(body); }
absl::Status Node::Call(int rank, GpuStream stream, absl::FunctionRef<absl::Status(Rank&)> body) {
  return impl_->Call(rank, stream, body);
}
absl::Status Node::Settle() { return impl_->Settle(); }

uint64_t Node::completed_runs() const { return impl_->completed_runs(); }
bool Node::stuck() const { return impl_->stuck(); }
bool Node::ReadyToFree() { return impl_->ReadyToFree(); }

uint32_t NodeClient::Register(Node& node, NodeClient* client, std::string name) {
  return node.impl_->AddClient(client, std::move(name));
}
void NodeClient::Release(Node& node, const absl::Status& status) { node.impl_->Release(status); }
void NodeClient::Unregister(Node& node, uint32_t id) { node.impl_->RemoveClient(id); }

Caller::Caller(Node& node, std::string name)
    : node_(node.Share()), id_(node_->impl_->AddCaller(std::move(name))) {}
Caller::~Caller() { node_->impl_->RemoveCaller(id_); }

CallerScope::CallerScope(Rank& rank, uint32_t caller) : rank_(rank), set_(rank.caller_ == 0) {
  if (set_) rank_.caller_ = caller;
}
CallerScope::~CallerScope() {
  if (set_) rank_.caller_ = 0;
}

}  // namespace octet
