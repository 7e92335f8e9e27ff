#include "runtime/node.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/peers.h"
#include "runtime/flag_table.h"
#include "runtime/node_impl.h"
#include "runtime/status_macros.h"
#include "runtime/topology.h"

namespace octet {
namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(10);

absl::StatusOr<absl::Duration> TimeoutOf(const NodeOptions& options) {
  if (options.timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("NodeOptions::timeout is ", absl::FormatDuration(options.timeout)));
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

}  // namespace

int Rank::num_ranks() const { return node_->num_ranks(); }

absl::Status Rank::Barrier() { return node_->impl_->barrier().Arrive(rank_); }

absl::Status Rank::CoordinatedLaunch(absl::FunctionRef<absl::Status()> launch) {
  ++coordinated_launches_;
  OCTET_RETURN_IF_ERROR(Barrier());
  return launch();
}

absl::Status Rank::Synchronize() { return node_->impl_->Synchronize(*this); }

device::FailurePort Rank::failure_port(uint32_t client) const {
  return node_->impl_->failure_port(rank_, client);
}

absl::Status Rank::EnqueueNodeBarrier() { return node_->impl_->EnqueueNodeBarrier(*this); }

absl::Status NodeClient::CopyFlags(Rank& /*rank*/) { return absl::OkStatus(); }
std::vector<FlagTable> NodeClient::FlagTables(absl::Span<const device::FailureRecord> /*waits*/) {
  return {};
}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(const NodeOptions& options) {
  OCTET_ASSIGN_OR_RETURN(const absl::Duration timeout, TimeoutOf(options));
  OCTET_ASSIGN_OR_RETURN(Topology topology, DiscoverTopology());
  int num_ranks = options.num_ranks;
  if (num_ranks == 0) num_ranks = std::min(static_cast<int>(topology.gpus.size()), kMaxRanks);
  if (num_ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ranks, " ranks asked for, ", kMaxRanks, " are the most"));
  }
  OCTET_RETURN_IF_ERROR(topology.CheckRanks(num_ranks));

  auto node = std::unique_ptr<Node>(new Node());
  node->impl_ = std::make_unique<Impl>(node.get(), std::move(topology), num_ranks, timeout);
  OCTET_RETURN_IF_ERROR(node->impl_->Start(options.pin_threads));
  return node;
}

Node::Node() = default;
Node::~Node() = default;

int Node::num_ranks() const { return impl_->num_ranks(); }
const Topology& Node::topology() const { return impl_->topology(); }
absl::Duration Node::timeout() const { return impl_->timeout(); }

absl::Status Node::Run(absl::FunctionRef<absl::Status(Rank&)> body) { return impl_->Run(body); }

bool Node::stuck() const { return impl_->stuck(); }

uint32_t Node::AddClient(NodeClient* client) { return impl_->AddClient(client); }
void Node::RemoveClient(uint32_t id) { impl_->RemoveClient(id); }

}  // namespace octet
