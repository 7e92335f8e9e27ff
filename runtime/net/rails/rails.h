// The rails of all ranks of a node, over one transport.
#ifndef OCTET_RUNTIME_NET_RAILS_RAILS_H_
#define OCTET_RUNTIME_NET_RAILS_RAILS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/node.h"
#include "runtime/device/failure_record.h"
#include "runtime/net/progress.h"
#include "runtime/net/rails/rail.h"
#include "runtime/node/node_client.h"

namespace octet {

// What a World tells its transport, and what all transports have in common. The node may be
// destroyed first; `progress` must outlive it.
class Rails : public NodeClient {
 public:
  ~Rails() override;

  virtual RailTransport transport() const = 0;
  virtual Rail& rail(int rank) const = 0;

  // For errors, by node.
  virtual void SetNames(std::vector<std::string> names) { names_ = std::move(names); }
  // Exchanges are refused unless open: from before the bodies of World::Run until their end.
  virtual void SetOpen(bool open) { open_ = open; }

  // Collective, after the nodes have agreed that a Run has failed. `reports[n]` is what Report has
  // returned on node n after that Run. On success the next exchanges are correct; an error is the
  // same on all nodes, or breaks `progress`.
  virtual std::string Report() const = 0;
  virtual absl::Status Realign(absl::Span<const std::string> reports, absl::Duration limit) = 0;

  // NodeClient. Rails recover when all nodes have ended the Run: Realign.
  absl::Status Recover(Rank& /*rank*/) override { return absl::OkStatus(); }

 protected:
  Rails(Node& node, Progress& progress);

  const std::string& name(int node) const { return names_[node]; }
  // Returns the failure of a wait for node record.index. `rest` follows the names.
  absl::Status DescribeWait(int rank, const device::FailureRecord& record,
                            const std::string& rest) const;
  // Returns an error if the rail of `rail_rank` may not exchange `parts` on `rank`, but for room.
  absl::Status CheckExchange(int rail_rank, const Rank& rank,
                             absl::Span<const RailPart> parts) const;

  const std::shared_ptr<Node> node_;
  Progress& progress_;
  uint32_t client_ = 0;

 private:
  std::vector<std::string> names_;
  std::atomic<bool> open_{false};
};

// Numbers of bytes.
struct ExchangeSize {
  size_t send = 0;
  size_t recv = 0;
};
// Returns the sums of the parts for each node, 0 for `node` itself.
std::vector<ExchangeSize> SizesOf(absl::Span<const RailPart> parts, int num_nodes, int node);
// Returns the sum over all nodes.
ExchangeSize SumOf(absl::Span<const ExchangeSize> sizes);
// kResourceExhausted if `size` is more than what Rail::Reserve has made room for.
absl::Status CheckRoom(const ExchangeSize& size, const ExchangeSize& room);

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_RAILS_RAILS_H_
