// The exchanges of rails, on the thread of Progress.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "octet/peers.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/net/link.h"
#include "runtime/net/outcome.h"
#include "runtime/net/progress.h"

namespace octet {

// Messages of a Run that has failed are never taken for those of a later one.
int Progress::TagOf(int rail) const {
  constexpr uint64_t kGenerations = Link::kTags / kMaxRanks;
  return static_cast<int>(generation_ % kGenerations) * kMaxRanks + rail;
}

bool Progress::IsExchanging() const {
  for (const RailState& rail : rails_) {
    for (const RailPeer& peer : rail.peers) {
      if (peer.send.has_value() || peer.receive.has_value()) return true;
    }
  }
  return false;
}

void Progress::Begin(PostedExchange exchange) {
  const int index = exchange.rail;
  ResizeRails(index + 1);
  RailState& rail = rails_[index];
  rail.exchange = std::move(exchange);
  for (int node = 0; node < num_nodes_; ++node) {
    if (node == node_ || peers_[node].lost) continue;
    const StagedPart& part = rail.exchange.parts[node];
    RailPeer& peer = rail.peers[node];
    const auto receive =
        link_->Receive(node, TagOf(index), absl::MakeSpan(part.recv, part.recv_bytes));
    const auto send =
        link_->Send(node, TagOf(index), absl::MakeConstSpan(part.send, part.send_bytes));
    if (receive.ok()) peer.receive = *receive;
    if (send.ok()) peer.send = *send;
    if (!receive.ok()) Lose(node, receive.status().message());
    if (!send.ok()) Lose(node, send.status().message());
    peer.expected = part.recv_bytes;
    peer.awaited = true;
  }
}

bool Progress::PollExchanges() {
  bool moved = false;
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    for (int node = 0; node < num_nodes_; ++node) {
      if (rails_[rail].peers[node].awaited) {
        moved = PollExchange(static_cast<int>(rail), node) || moved;
      }
    }
  }
  return moved;
}

std::optional<Link::Ended> Progress::Poll(int node, std::optional<Link::Ticket>* ticket) {
  if (!ticket->has_value()) return std::nullopt;
  absl::StatusOr<std::optional<Link::Ended>> ended = link_->Poll(**ticket);
  if (!ended.ok()) {
    Lose(node, ended.status().message());
    ended = Link::Ended();
  }
  if (ended->has_value()) ticket->reset();
  return *ended;
}

bool Progress::PollExchange(int rail, int node) {
  RailPeer& peer = rails_[rail].peers[node];
  Poll(node, &peer.send);
  if (const std::optional<Link::Ended> ended = Poll(node, &peer.receive)) {
    if (peers_[node].lost) return true;
    ++peer.received;
    if (ended->truncated || ended->bytes != peer.expected) {
      peer.awaited = false;
      const absl::Status failure =
          WithRank(rail, absl::InvalidArgumentError(absl::StrCat(
                             kExchangePhase, ": node ", node, " has sent ",
                             ended->truncated ? "more bytes" : absl::StrCat(ended->bytes, " bytes"),
                             ", node ", node_, " expects ", peer.expected, " (exchange ",
                             rails_[rail].exchange.number, ")")));
      TellListener([&](Listener& listener) { listener.OnExchangeFailed(failure); });
      return true;
    }
  }
  if (peer.send.has_value() || peer.receive.has_value() || peers_[node].lost) return false;
  peer.awaited = false;
  const PostedExchange& exchange = rails_[rail].exchange;
  std::atomic_ref<uint64_t>(exchange.arrived[node])
      .store(exchange.number, std::memory_order_release);
  return true;
}

void Progress::ResizeRails(size_t least) {
  if (rails_.size() >= least) return;
  rails_.resize(least);
  for (RailState& rail : rails_) rail.peers.resize(num_nodes_);
}

bool Progress::PollRealign() {
  ResizeRails(realigning_[node_].size());  // a rank may have posted nothing before others failed
  bool done = true;
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    for (int node = 0; node < num_nodes_; ++node) {
      if (node == node_ || peers_[node].lost) continue;
      done = RealignPeer(static_cast<int>(rail), node, realigning_[node][rail]) && done;
    }
  }
  if (!done) return false;
  for (RailState& rail : rails_) {
    for (int node = 0; node < num_nodes_; ++node) {
      rail.peers[node] = {};
      if (rail.exchange.arrived == nullptr) continue;
      std::atomic_ref<uint64_t>(rail.exchange.arrived[node])
          .store(rail.exchange.number, std::memory_order_release);
    }
  }
  ++generation_;
  realigning_.clear();
  MutexLock lock(&mutex_);
  realign_.clear();
  posted_.assign(posted_.size(), 0);
  changed_.SignalAll();
  return true;
}

absl::Status Progress::ReceiveUnwanted(int rail, int node) {
  OCTET_ASSIGN_OR_RETURN(const std::optional<size_t> bytes, link_->Probe(node, TagOf(rail)));
  if (!bytes.has_value()) return absl::OkStatus();
  RailPeer& peer = rails_[rail].peers[node];
  peer.unwanted.resize(*bytes);
  OCTET_ASSIGN_OR_RETURN(peer.receive,
                         link_->Receive(node, TagOf(rail), absl::MakeSpan(peer.unwanted)));
  return absl::OkStatus();
}

bool Progress::RealignPeer(int rail, int node, uint64_t posted) {
  RailPeer& peer = rails_[rail].peers[node];
  peer.awaited = false;
  Poll(node, &peer.send);
  if (peer.receive.has_value()) {
    if (peer.received >= posted && !peer.cancelled) {
      peer.cancelled = true;
      link_->Cancel(*peer.receive);
    }
    if (Poll(node, &peer.receive).has_value() && !peer.cancelled) ++peer.received;
  } else if (peer.received < posted) {
    if (const absl::Status begun = ReceiveUnwanted(rail, node); !begun.ok()) {
      Lose(node, begun.message());
    }
  }
  return !peer.send.has_value() && !peer.receive.has_value() && peer.received >= posted;
}

}  // namespace octet
