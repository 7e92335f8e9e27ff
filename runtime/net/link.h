// Messages between the processes of a World: the only thing that knows the engine which carries
// them, MPI.
#ifndef OCTET_RUNTIME_NET_LINK_H_
#define OCTET_RUNTIME_NET_LINK_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace octet {

// How far Link::Open has come, for a thread that waits for it.
struct LinkOpening {
  // The call of the engine that waits for the other processes, if there is one now.
  std::atomic<const char*> call{nullptr};
  // Those that the launcher has started, this one's number among them.
  std::atomic<int> num_processes{1};
  std::atomic<int> process{0};
  std::atomic<int> processes_on_host{1};  // of them, on this computer
  // Set by the one who waits: Open is to return, as soon as the engine lets it.
  std::atomic<bool> given_up{false};
};

// Used by one thread only, the one that has opened it. No function waits for another process,
// except Open and an orderly Close: they can wait for ever, so the thread must be one that can be
// left behind.
class Link {
 public:
  // Tags of Send and Receive: 0 .. kTags - 1. Every engine has that many.
  static constexpr int kTags = 32000;
  // The most bytes of a message.
  static constexpr size_t kMaxBytes = (size_t{1} << 31) - 1;

  // Joins the processes that the launcher has started.
  //   kUnimplemented       Octet has been built without MPI
  //   kFailedPrecondition  the engine has been started in a way that excludes its use here, or has
  //                        been shut down in this process
  //   kCancelled           it has been given up
  static absl::StatusOr<std::unique_ptr<Link>> Open(LinkOpening& opening);
  virtual ~Link() = default;

  virtual int node() const = 0;
  virtual int num_nodes() const = 0;

  // A message under way. The memory that was given must stay until Poll says that it has ended.
  using Ticket = int;
  struct Ended {
    size_t bytes = 0;        // received
    bool truncated = false;  // the message was longer than the memory, and the rest is lost
  };

  // Messages of one tag from one node to another are received in the order in which they were sent.
  virtual absl::StatusOr<Ticket> Send(int node, int tag, absl::Span<const char> data) = 0;
  virtual absl::StatusOr<Ticket> Receive(int node, int tag, absl::Span<char> data) = 0;
  // Returns the bytes of the next message that has come and that no Receive waits for.
  virtual absl::StatusOr<std::optional<size_t>> Probe(int node, int tag) = 0;
  // Returns nullopt while the message is under way. After anything else the ticket is void.
  virtual absl::StatusOr<std::optional<Ended>> Poll(Ticket ticket) = 0;
  // Takes back a receive for which nothing has been sent. Poll it until it has ended.
  virtual void Cancel(Ticket ticket) = 0;

  // Sends text of any length, below kMaxBytes, apart from all tags. The Link keeps what is under
  // way.
  virtual absl::Status SendText(int node, std::string text) = 0;
  // Returns whether nothing that SendText was given for `node` is under way.
  virtual bool HasSentTexts(int node) = 0;
  // Returns the next text that has come from `node`, if any.
  virtual absl::StatusOr<std::optional<std::string>> ReceiveText(int node) = 0;

  // Orderly: all processes do so and nothing is under way; the engine is shut down if Open has
  // started it. Otherwise other processes may have died, and waiting for them would not end: the
  // engine is left as it is.
  virtual void Close(bool orderly) = 0;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_LINK_H_
