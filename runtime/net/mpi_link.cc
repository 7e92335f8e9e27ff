// Link over MPI.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/backoff.h"
#include "runtime/base/launched.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/link.h"

namespace octet {
namespace {

static_assert(Link::kTags < 32767);  // the least that MPI_TAG_UB may be
constexpr int kTextTag = Link::kTags;

absl::Status MpiStatus(int error, absl::string_view call) {
  if (error == MPI_SUCCESS) return absl::OkStatus();
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  text.resize(length);
  return absl::InternalError(absl::StrCat(call, ": ", text));
}

// Whether Octet has ever called MPI_Init_thread in this process, which MPI allows once.
std::atomic<bool>& HasStartedMpi() {
  static std::atomic<bool> started{false};
  return started;
}

// Starts MPI unless the program has. `*started`: this has.
absl::Status StartMpi(LinkOpening& opening, bool* started) {
  int finalized = 0;
  OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Finalized(&finalized), "MPI_Finalized"));
  if (finalized != 0) {
    return absl::FailedPreconditionError(
        "MPI has been shut down in this process and cannot start twice: make one World for the "
        "life of the process, or call MPI_Init_thread and MPI_Finalize around all of them");
  }
  int initialized = 0;
  OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Initialized(&initialized), "MPI_Initialized"));
  int provided = 0;
  if (initialized == 0) {
    if (HasStartedMpi().exchange(true)) {
      return absl::FailedPreconditionError(
          "MPI_Init_thread has not returned since an earlier World::Create, and cannot be called "
          "twice: end all processes and start them anew");
    }
    *started = true;
    opening.call = "MPI_Init_thread";
    // The calling thread is the one that makes all calls, thus MPI's main thread.
    return MpiStatus(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
                     "MPI_Init_thread");
  }
  OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Query_thread(&provided), "MPI_Query_thread"));
  if (provided == MPI_THREAD_MULTIPLE) return absl::OkStatus();
  if (HasStartedMpi()) {
    return absl::FailedPreconditionError(
        "Octet has started MPI for another World of this process, which still exists, is broken or "
        "has not come up: make one World for the life of the process, or call MPI_Init_thread and "
        "MPI_Finalize around all of them");
  }
  return absl::FailedPreconditionError(
      "the program has started MPI without MPI_THREAD_MULTIPLE, so that no thread of Octet's may "
      "call it: ask MPI_Init_thread for that, or leave the start of MPI to Octet");
}

// Returns a communicator of all processes, apart from the program's own messages.
absl::StatusOr<MPI_Comm> Duplicate(LinkOpening& opening) {
  struct Duplication {
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  auto made = std::make_unique<Duplication>();
  opening.call = "MPI_Comm_idup";
  OCTET_RETURN_IF_ERROR(MpiStatus(
      MPI_Comm_idup(MPI_COMM_WORLD, &made->communicator, &made->request), "MPI_Comm_idup"));
  Backoff backoff(Backoff::Cores::kShared);
  while (true) {
    int done = 0;
    OCTET_RETURN_IF_ERROR(
        MpiStatus(MPI_Test(&made->request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done != 0) return made->communicator;
    if (opening.given_up) {
      // MPI may still write to it.
      [[maybe_unused]] const Duplication* left = made.release();
      return absl::CancelledError("MPI_Comm_idup has not ended");
    }
    backoff.Wait();
  }
}

class MpiLink : public Link {
 public:
  static absl::StatusOr<std::unique_ptr<Link>> Open(LinkOpening& opening) {
    const LaunchedProcess launched = LaunchedAs([](const char* name) { return std::getenv(name); });
    opening.num_processes = launched.num_processes;
    opening.process = launched.process;
    opening.processes_on_host = launched.on_host;
    auto link = std::make_unique<MpiLink>();
    OCTET_RETURN_IF_ERROR(StartMpi(opening, &link->started_));
    if (opening.given_up) return absl::CancelledError("MPI_Init_thread has returned too late");
    OCTET_ASSIGN_OR_RETURN(link->communicator_, Duplicate(opening));
    // Errors come back as values.
    OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Comm_set_errhandler(link->communicator_, MPI_ERRORS_RETURN),
                                    "MPI_Comm_set_errhandler"));
    OCTET_RETURN_IF_ERROR(
        MpiStatus(MPI_Comm_rank(link->communicator_, &link->node_), "MPI_Comm_rank"));
    int num_nodes = 0;
    OCTET_RETURN_IF_ERROR(
        MpiStatus(MPI_Comm_size(link->communicator_, &num_nodes), "MPI_Comm_size"));
    link->texts_ = std::make_unique<std::vector<Texts>>(num_nodes);
    return link;
  }

  int node() const override { return node_; }
  int num_nodes() const override { return static_cast<int>(texts_->size()); }

  absl::StatusOr<Ticket> Send(int node, int tag, absl::Span<const char> data) override {
    MPI_Request request = MPI_REQUEST_NULL;
    OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_BYTE,
                                              node, tag, communicator_, &request),
                                    "MPI_Isend"));
    return Keep(request);
  }

  absl::StatusOr<Ticket> Receive(int node, int tag, absl::Span<char> data) override {
    MPI_Request request = MPI_REQUEST_NULL;
    OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_BYTE,
                                              node, tag, communicator_, &request),
                                    "MPI_Irecv"));
    return Keep(request);
  }

  absl::StatusOr<std::optional<size_t>> Probe(int node, int tag) override {
    int found = 0;
    MPI_Status status;
    OCTET_RETURN_IF_ERROR(
        MpiStatus(MPI_Iprobe(node, tag, communicator_, &found, &status), "MPI_Iprobe"));
    if (found == 0) return std::nullopt;
    int bytes = 0;
    OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count"));
    return bytes;
  }

  absl::StatusOr<std::optional<Ended>> Poll(Ticket ticket) override {
    int done = 0;
    MPI_Status status;
    const int error = MPI_Test(&requests_[ticket], &done, &status);
    if (error == MPI_SUCCESS && done == 0) return std::nullopt;
    requests_[ticket] = MPI_REQUEST_NULL;
    free_tickets_.push_back(ticket);
    int error_class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) return Ended{.truncated = true};
    OCTET_RETURN_IF_ERROR(MpiStatus(error, "MPI_Test"));
    int bytes = 0;
    OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count"));
    return Ended{.bytes = static_cast<size_t>(std::max(bytes, 0))};
  }

  void Cancel(Ticket ticket) override { MPI_Cancel(&requests_[ticket]); }

  absl::Status SendText(int node, std::string text) override {
    Texts& theirs = (*texts_)[node];
    theirs.sent.push_back({.text = std::move(text)});
    Text& sent = theirs.sent.back();  // elements of a deque keep their place
    return MpiStatus(MPI_Isend(sent.text.data(), static_cast<int>(sent.text.size()), MPI_BYTE, node,
                               kTextTag, communicator_, &sent.request),
                     "MPI_Isend");
  }

  bool HasSentTexts(int node) override {
    std::deque<Text>& sent = (*texts_)[node].sent;
    while (!sent.empty()) {
      int done = 0;
      // An error ends the message, too; receiving reports that the node is gone.
      const int error = MPI_Test(&sent.front().request, &done, MPI_STATUS_IGNORE);
      if (error == MPI_SUCCESS && done == 0) return false;
      sent.pop_front();
    }
    return true;
  }

  absl::StatusOr<std::optional<std::string>> ReceiveText(int node) override {
    std::optional<Text>& coming = (*texts_)[node].coming;
    if (!coming.has_value()) {
      int matched = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      OCTET_RETURN_IF_ERROR(MpiStatus(
          MPI_Improbe(node, kTextTag, communicator_, &matched, &message, &status), "MPI_Improbe"));
      if (matched == 0) return std::nullopt;
      int bytes = 0;
      OCTET_RETURN_IF_ERROR(MpiStatus(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count"));
      coming.emplace();
      coming->text.resize(bytes);
      OCTET_RETURN_IF_ERROR(
          MpiStatus(MPI_Imrecv(coming->text.data(), bytes, MPI_BYTE, &message, &coming->request),
                    "MPI_Imrecv"));
    }
    int done = 0;
    OCTET_RETURN_IF_ERROR(
        MpiStatus(MPI_Test(&coming->request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done == 0) return std::nullopt;
    std::string text = std::move(coming->text);
    coming.reset();
    return text;
  }

  void Close(bool orderly) override {
    if (!orderly) {
      // MPI may still read and write what is under way.
      [[maybe_unused]] const std::vector<Texts>* left = texts_.release();
      return;
    }
    // Nothing can report errors here.
    MPI_Comm_free(&communicator_);
    if (started_) MPI_Finalize();
  }

 private:
  struct Text {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Texts {
    std::deque<Text> sent;
    std::optional<Text> coming;
  };

  Ticket Keep(MPI_Request request) {
    if (free_tickets_.empty()) {
      requests_.push_back(request);
      return static_cast<Ticket>(requests_.size()) - 1;
    }
    const Ticket ticket = free_tickets_.back();
    free_tickets_.pop_back();
    requests_[ticket] = request;
    return ticket;
  }

  bool started_ = false;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int node_ = 0;
  std::vector<MPI_Request> requests_;  // by ticket
  std::vector<Ticket> free_tickets_;
  std::unique_ptr<std::vector<Texts>> texts_;  // by node
};

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> Link::Open(LinkOpening& opening) {
  return MpiLink::Open(opening);
}

}  // namespace octet
