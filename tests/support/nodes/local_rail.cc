#include "tests/support/nodes/local_rail.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/pinned_memory.h"
#include "runtime/node/node_client.h"
#include "tests/support/node/node_kernels.h"

namespace octet {
namespace {

constexpr absl::Duration kLate = absl::Microseconds(300);
constexpr absl::Duration kBetweenPolls = absl::Microseconds(20);

// What the stream of one node and the carrier tell each other, in pinned memory.
struct Words {
  uint64_t reached;  // the last exchange that the stream has come to
  uint64_t done;     // the last exchange that the stream may go beyond
  uint64_t passed;   // exchanges that it has gone beyond
};

}  // namespace

// Joins the ranks with one local index.
class LocalRails::Carrier {
 public:
  explicit Carrier(int num_nodes) : posted_(static_cast<size_t>(num_nodes)) {}
  ~Carrier() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    posted_changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    if (thread_.joinable()) return absl::OkStatus();
    OCTET_ASSIGN_OR_RETURN(words_, PinnedMemory::Allocate(posted_.size() * sizeof(Words)));
    for (size_t node = 0; node < posted_.size(); ++node) WordsOf(node) = {};
    thread_ = std::thread([this] { Carry(); });
    return absl::OkStatus();
  }

  Words& WordsOf(size_t node) const { return words_.as<Words>()[node]; }
  int num_nodes() const { return static_cast<int>(posted_.size()); }

  void Post(size_t node, absl::Span<const RailPart> parts) {
    const std::scoped_lock lock(mutex_);
    posted_[node].emplace_back(parts.begin(), parts.end());
    posted_changed_.notify_all();
  }

  // Returns the first node whose stream has not come to exchange `call`; num_nodes(): all have.
  int FirstMissing(uint64_t call) const {
    int node = 0;
    while (node < num_nodes() && Reached(static_cast<size_t>(node)) >= call) ++node;
    return node;
  }
  absl::Status status() const {
    const std::scoped_lock lock(mutex_);
    return status_;
  }
  int64_t bytes() const {
    const std::scoped_lock lock(mutex_);
    return bytes_;
  }

 private:
  using Posted = std::deque<std::vector<RailPart>>;

  uint64_t Reached(size_t node) const {
    return std::atomic_ref(WordsOf(node).reached).load(std::memory_order_acquire);
  }

  void Carry() {
    hipStream_t stream = nullptr;
    absl::Status status = OCTET_GPU(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    for (uint64_t call = 1; status.ok() && Await(call); ++call) {
      status = Exchange(stream);
      for (size_t node = 0; status.ok() && node < posted_.size(); ++node) {
        std::atomic_ref(WordsOf(node).done).store(call, std::memory_order_release);
      }
    }
    if (stream != nullptr) status.Update(OCTET_GPU(hipStreamDestroy(stream)));
    const std::scoped_lock lock(mutex_);
    status_ = status;
  }

  // Waits until all nodes have posted exchange `call` and their streams have come to it. Returns
  // false if nobody needs it any more.
  bool Await(uint64_t call) {
    std::unique_lock lock(mutex_);
    const auto all_posted = [this] {
      for (const Posted& posted : posted_) {
        if (posted.empty()) return false;
      }
      return true;
    };
    posted_changed_.wait(lock, [&] { return stopping_ || all_posted(); });
    while (!stopping_ && FirstMissing(call) < num_nodes()) {
      posted_changed_.wait_for(lock, absl::ToChronoMicroseconds(kBetweenPolls));
    }
    return !stopping_;
  }

  // Describes a part that one node sends to another.
  struct Crossing {
    const void* sent;
    void* received;
    size_t bytes;
  };

  // Appends what one node sends to another. `parts`: of each node.
  static absl::Status AppendCrossings(const std::vector<std::vector<RailPart>>& parts, int from,
                                      int to, std::vector<Crossing>& crossings) {
    const size_t nodes = parts.size();
    const std::vector<RailPart>& of_from = parts[static_cast<size_t>(from)];
    const std::vector<RailPart>& of_to = parts[static_cast<size_t>(to)];
    if (of_from.size() != of_to.size()) {
      return absl::InternalError(absl::StrCat("node ", from, " exchanges ", of_from.size(),
                                              " parts, node ", to, " ", of_to.size()));
    }
    for (size_t first = 0; first < of_from.size(); first += nodes) {
      const RailPart& sent = of_from[first + static_cast<size_t>(to)];
      const RailPart& received = of_to[first + static_cast<size_t>(from)];
      if (sent.send_bytes != received.recv_bytes) {
        return absl::InternalError(absl::StrCat("node ", from, " sends ", sent.send_bytes,
                                                " bytes to node ", to, ", which expects ",
                                                received.recv_bytes));
      }
      if (sent.send_bytes > 0) crossings.push_back({sent.send, received.recv, sent.send_bytes});
    }
    return absl::OkStatus();
  }

  // Returns what crosses in the first posted exchange, which is no longer posted then.
  absl::StatusOr<std::vector<Crossing>> TakeCrossings() {
    std::vector<std::vector<RailPart>> parts;
    {
      const std::scoped_lock lock(mutex_);
      for (Posted& posted : posted_) {
        parts.push_back(posted.front());
        posted.pop_front();
      }
    }
    std::vector<Crossing> crossings;
    const auto nodes = static_cast<int>(parts.size());
    for (int from = 0; from < nodes; ++from) {
      for (int to = 0; to < nodes; ++to) {
        if (from == to) continue;
        OCTET_RETURN_IF_ERROR(AppendCrossings(parts, from, to, crossings));
      }
    }
    return crossings;
  }

  // Carries out the first posted exchange: reads everything at once and delivers it late.
  absl::Status Exchange(hipStream_t stream) {
    OCTET_ASSIGN_OR_RETURN(const std::vector<Crossing> crossings, TakeCrossings());
    std::vector<std::vector<char>> contents;
    int64_t bytes = 0;
    for (const Crossing& crossing : crossings) {
      std::vector<char>& content = contents.emplace_back(crossing.bytes);
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpyAsync(content.data(), crossing.sent, crossing.bytes, hipMemcpyDefault, stream));
      bytes += static_cast<int64_t>(crossing.bytes);
    }
    OCTET_RETURN_IF_GPU_ERROR(hipStreamSynchronize(stream));
    absl::SleepFor(kLate);
    for (size_t i = 0; i < crossings.size(); ++i) {
      OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(crossings[i].received, contents[i].data(),
                                               crossings[i].bytes, hipMemcpyDefault, stream));
    }
    OCTET_RETURN_IF_GPU_ERROR(hipStreamSynchronize(stream));
    const std::scoped_lock lock(mutex_);
    bytes_ += bytes;
    return absl::OkStatus();
  }

  mutable std::mutex mutex_;
  std::condition_variable posted_changed_;
  std::vector<Posted> posted_;  // by node: exchanges that have not been carried out
  absl::Status status_;
  int64_t bytes_ = 0;
  bool stopping_ = false;
  PinnedMemory words_;
  std::thread thread_;
};

class LocalRails::OneRail : public Rail, private NodeClient {
 public:
  OneRail(Carrier& carrier, int number, Node& node)
      : carrier_(carrier), number_(number), node_(node.Share()) {
    client_ = NodeClient::Register(*node_, this);
  }
  ~OneRail() override { NodeClient::Unregister(*node_, client_); }

  int node() const override { return number_; }
  int num_nodes() const override { return carrier_.num_nodes(); }

  absl::Status Reserve(size_t send_bytes, size_t recv_bytes) override {
    send_room_ = std::max(send_room_, send_bytes);
    recv_room_ = std::max(recv_room_, recv_bytes);
    return absl::OkStatus();
  }

  int compute_units() const override { return 1; }
  void Wake() override {}

  absl::Status ExchangeOn(GpuStream stream, Rank& rank, absl::Span<const RailPart> parts) override {
    const auto number = static_cast<size_t>(number_);
    size_t send_bytes = 0;
    size_t recv_bytes = 0;
    const auto nodes = static_cast<size_t>(num_nodes());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i % nodes == number) continue;
      send_bytes += parts[i].send_bytes;
      recv_bytes += parts[i].recv_bytes;
    }
    if (send_bytes > send_room_ || recv_bytes > recv_room_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("an exchange sends ", send_bytes, " bytes and receives ", recv_bytes,
                       "; there is room for ", send_room_, " and ", recv_room_));
    }
    carrier_.Post(number, parts);
    Words& words = carrier_.WordsOf(number);
    const uint64_t call = ++calls_;
    return rank.LaunchWaiting([&] {
      return OCTET_GPU(
          LaunchExchange({.port = NodeClient::PortOf(rank, client_),
                          .site = {.site = 0, .peer = -1, .index = static_cast<uint32_t>(call)},
                          .to = &words.reached,
                          .flag = &words.done,
                          .epoch = call,
                          .passed = &words.passed},
                         stream));
    });
  }

  absl::Status ExchangeCounts(Rank& rank, absl::Span<const int32_t> sent,
                              absl::Span<int32_t> received) override {
    const auto nodes = static_cast<size_t>(num_nodes());
    if (counts_.as<int32_t>() == nullptr) {
      OCTET_ASSIGN_OR_RETURN(counts_, PinnedMemory::Allocate(2 * nodes * sizeof(int32_t)));
    }
    auto* const own = counts_.as<int32_t>();
    auto* const others = own + nodes;
    std::vector<RailPart> parts;
    for (size_t n = 0; n < nodes; ++n) {
      own[n] = sent[n];
      others[n] = 0;
      parts.push_back({&own[n], sizeof(int32_t), &others[n], sizeof(int32_t)});
    }
    OCTET_RETURN_IF_ERROR(Reserve(nodes * sizeof(int32_t), nodes * sizeof(int32_t)));
    OCTET_RETURN_IF_ERROR(Exchange(rank, parts));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    std::copy_n(others, nodes, received.begin());
    return absl::OkStatus();
  }

 private:
  absl::Status Describe(int rank, const device::FailureRecord& record) const override {
    const std::string flag = absl::StrCat("rank ", rank, " of node ",
                                          carrier_.FirstMissing(record.expected), " in exchange");
    const NodeFailure failure = RecordedFailure(rank, record, "rail", flag);
    const absl::Status status = carrier_.status();
    return status.ok() ? DeadlineStatus(failure) : WithFailure(failure, status);
  }
  absl::Status Recover(Rank& /*rank*/) override { return absl::OkStatus(); }

  Carrier& carrier_;
  const int number_;
  const std::shared_ptr<Node> node_;
  uint32_t client_ = 0;
  size_t send_room_ = 0;
  size_t recv_room_ = 0;
  uint64_t calls_ = 0;
  PinnedMemory counts_;  // sent, then received
};

LocalRails::LocalRails(int num_nodes, int ranks_per_node) {
  for (int rank = 0; rank < ranks_per_node; ++rank) {
    carriers_.push_back(std::make_unique<Carrier>(num_nodes));
  }
}

LocalRails::~LocalRails() = default;

absl::StatusOr<std::vector<Rail*>> LocalRails::Connect(int number, Node& node) {
  std::vector<Rail*> rails;
  for (const auto& carrier : carriers_) {
    OCTET_RETURN_IF_ERROR(carrier->Start());
    rails.push_back(rails_.emplace_back(std::make_unique<OneRail>(*carrier, number, node)).get());
  }
  return rails;
}

int64_t LocalRails::bytes() const {
  int64_t bytes = 0;
  for (const auto& carrier : carriers_) bytes += carrier->bytes();
  return bytes;
}

}  // namespace octet
