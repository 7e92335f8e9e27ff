// A rank's connection to the ranks with the same local index on the other nodes.
#ifndef OCTET_RUNTIME_NET_RAILS_RAIL_H_
#define OCTET_RUNTIME_NET_RAILS_RAIL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/node.h"

namespace octet {

// What one rank exchanges with one node, or a part of it.
struct RailPart {
  const void* send = nullptr;  // memory of the rank's own GPU; may be null if send_bytes is 0
  size_t send_bytes = 0;
  void* recv = nullptr;   // likewise
  size_t recv_bytes = 0;  // what that node sends to this one
};

// Joins rank `i` of every node. World::rail returns it.
class Rail {
 public:
  virtual ~Rail() = default;

  virtual int node() const = 0;       // of this rank, 0 .. num_nodes() - 1
  virtual int num_nodes() const = 0;  // P

  // Returns how many of the rank's compute units kernels of an exchange may occupy at a time. What
  // runs beside an exchange, and waits for it or makes what it sends, must leave them free.
  virtual int compute_units() const = 0;

  // Makes room for exchanges of up to so many bytes, to and from all nodes together. What an
  // earlier call has made room for stays. Not inside Run; every Exchange needs it before.
  virtual absl::Status Reserve(size_t send_bytes, size_t recv_bytes) = 0;

  // Says that an exchange, or one of counts, follows soon: threads that carry it wake up meanwhile.
  // Optional. On the rank's thread.
  virtual void Wake() = 0;

  // Enqueues one exchange with all nodes on rank.stream() and returns; does not wait for the
  // stream. parts[k * num_nodes() + n] is the k-th part for node n; those for node() are ignored.
  // All parts cross together, so that several cost as much time as one of their sizes' sum. The
  // nodes' ranks make the same exchanges in the same order, with as many parts and sizes that agree
  // part by part: what node a sends to b is what b receives from a. What the stream did before is
  // sent; what it does afterwards finds the received bytes. May be captured into a graph, which
  // must not outlive the World; over NCCL, not the next failed Run either (Graph::Launch).
  //
  // A node that does not take part within Node::timeout() fails the Run, with the node and rank in
  // the error, and so do sizes that do not agree in the sum of a node's parts. Over NCCL, so does
  // an error that the library notices (kAborted). Returns
  //   kFailedPrecondition  outside World::Run, or the rank is not this rail's
  //   kResourceExhausted   more bytes than Reserve has made room for
  //   kInvalidArgument     the number of parts is not a multiple of num_nodes(), or the parts for a
  //                        node are longer than a message of the transport: 2 GiB - 1 over MPI
  //   kCancelled           over NCCL: the Run has failed
  //   kDeadlineExceeded    over NCCL: it has not enqueued the exchange within Node::timeout()
  absl::Status Exchange(Rank& rank, absl::Span<const RailPart> parts) {
    return ExchangeOn(rank.stream(), rank, parts);
  }
  // The same on another stream of the rank. The exchanges of a rank must be ordered, by the streams
  // or by events.
  virtual absl::Status ExchangeOn(GpuStream stream, Rank& rank,
                                  absl::Span<const RailPart> parts) = 0;

  // Exchanges numbers between the hosts, at once and not on the stream: sends sent[n] to node n and
  // sets received[n] to what that node has sent, [num_nodes()] each; received[node()] becomes 0.
  // Waits for them. MPI carries them, whatever carries rows. All earlier exchanges of the rank must
  // have ended, and no capture be in progress. Fails as Exchange does.
  virtual absl::Status ExchangeCounts(Rank& rank, absl::Span<const int32_t> sent,
                                      absl::Span<int32_t> received) = 0;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_RAILS_RAIL_H_
