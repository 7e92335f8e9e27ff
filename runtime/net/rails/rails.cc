#include "runtime/net/rails/rails.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "octet/node_failure.h"
#include "runtime/failure/failure.h"
#include "runtime/net/outcome.h"
#include "runtime/node/node_client.h"

namespace octet {

Rails::Rails(Node& node, Progress& progress)
    : node_(node.Share()), progress_(progress), client_(NodeClient::Register(node, this)) {
  for (int index = 0; index < progress.num_nodes(); ++index) {
    names_.push_back(absl::StrCat("node ", index));
  }
}

Rails::~Rails() { NodeClient::Unregister(*node_, client_); }

absl::Status Rails::DescribeWait(int rank, const device::FailureRecord& record,
                                 const std::string& rest) const {
  const NodeFailure failure = RecordedFailure(rank, record, kExchangePhase, "the bytes of node");
  return WithFailure(
      failure, absl::DeadlineExceededError(absl::StrCat(
                   kExchangePhase, " waited ", WaitText(failure.waited), " for rank ", rank, " of ",
                   names_[record.index], ": exchange ", record.expected, ", ", rest)));
}

absl::Status Rails::CheckExchange(int rail_rank, const Rank& rank,
                                  absl::Span<const RailPart> parts) const {
  if (!open_) return absl::FailedPreconditionError("Rail::Exchange outside World::Run");
  if (!rank.IsOf(*node_) || rank.rank() != rail_rank) {
    return absl::FailedPreconditionError(absl::StrCat("Rail::Exchange of rank ", rail_rank,
                                                      "'s rail on rank ", rank.rank(),
                                                      rank.IsOf(*node_) ? "" : " of another node"));
  }
  if (parts.empty() || parts.size() % static_cast<size_t>(progress_.num_nodes()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Rail::Exchange of ", parts.size(), " parts between ", progress_.num_nodes(), " nodes"));
  }
  return absl::OkStatus();
}

std::vector<ExchangeSize> SizesOf(absl::Span<const RailPart> parts, int num_nodes, int node) {
  std::vector<ExchangeSize> sizes(static_cast<size_t>(num_nodes));
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t other = i % sizes.size();
    if (other == static_cast<size_t>(node)) continue;
    sizes[other].send += parts[i].send_bytes;
    sizes[other].recv += parts[i].recv_bytes;
  }
  return sizes;
}

ExchangeSize SumOf(absl::Span<const ExchangeSize> sizes) {
  ExchangeSize sum;
  for (const ExchangeSize& size : sizes) {
    sum.send += size.send;
    sum.recv += size.recv;
  }
  return sum;
}

absl::Status CheckRoom(const ExchangeSize& size, const ExchangeSize& room) {
  if (size.send <= room.send && size.recv <= room.recv) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("Rail::Exchange sends ", size.send, " bytes and receives ", size.recv,
                   "; Rail::Reserve has made room for ", room.send, " and ", room.recv));
}

}  // namespace octet
