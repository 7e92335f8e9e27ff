#include "runtime/net/progress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/peers.h"
#include "runtime/base/cpu_affinity.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/net/link.h"
#include "runtime/net/outcome.h"
#include "runtime/net/pack.h"

namespace octet {
namespace {

// The first field of every text.
constexpr absl::string_view kAlive = "alive";
constexpr absl::string_view kGather = "gather";  // call, bytes
constexpr absl::string_view kFailed = "failed";  // run, Status
constexpr absl::string_view kBroken = "broken";  // Status

// How many signs of life a node sends within the time after which it is lost.
constexpr int kSignsOfLife = 20;
// How long the thread sleeps between polls when it has nothing to do but to listen.
constexpr absl::Duration kListen = absl::Milliseconds(1);
// How long it goes on polling after Wake.
constexpr absl::Duration kPollAfterWake = absl::Microseconds(200);
// How often those who wait for the thread look at the clock.
constexpr absl::Duration kLook = absl::Milliseconds(50);
// How long texts may take to leave at the end.
constexpr absl::Duration kLastTexts = absl::Seconds(1);

std::string Text(absl::string_view kind, const std::string& first = {},
                 const std::string& second = {}) {
  return Pack({std::string(kind), first, second});
}

// Copies share no memory: see runtime/base/mutex.h and HostBarrier about ThreadSanitizer and
// Abseil.
absl::Status CopyOf(const absl::Status& status) { return WithMessage(status, status.message()); }

}  // namespace

// ---- any thread

void Progress::End::operator()(Progress* progress) const {
  static_cast<void>(progress->Stop());
  if (!progress->left_behind_) delete progress;
}

absl::StatusOr<Progress::Pointer> Progress::Start(Listener* listener, absl::Duration limit) {
  Pointer progress(new Progress(listener, limit));
  // The standard library reports by exceptions only.
  try {
    progress->thread_ =
        std::thread([course = progress->course_, raw = progress.get()] { Thread(course, raw); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread for MPI: ", error.what()));
  }
  OCTET_RETURN_IF_ERROR(progress->AwaitOpened());
  return progress;
}

absl::Status Progress::AwaitOpened() {
  {
    const Clock::time_point start = Clock::now();
    MutexLock lock(&course_->mutex);
    while (!course_->opened) {
      const absl::Duration waited = absl::FromChrono(Clock::now() - start);
      if (waited >= limit_) {
        LinkOpening& opening = course_->opening;
        opening.given_up = true;
        thread_.detach();
        const char* const call = opening.call;
        return absl::DeadlineExceededError(absl::StrCat(
            "process ", opening.process.load(), " of ", opening.num_processes.load(),
            " has waited ", WaitText(waited), " in ", call == nullptr ? "the start of MPI" : call,
            " for the others: all must call World::Create, and within "
            "WorldOptions::arrival_timeout; end all processes and start them anew"));
      }
      course_->changed.WaitFor(&course_->mutex, std::min(kLook, limit_ - waited));
    }
  }
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = CopyOf(start_status_);
  }
  return status;
}

absl::Status Progress::Stop() {
  if (!thread_.joinable()) return absl::OkStatus();
  {
    MutexLock lock(&mutex_);
    work_.stop = true;
    wake_.Signal();
  }
  const Clock::time_point start = Clock::now();
  const bool looped = AwaitCourse(&Course::looped, start);
  if (looped && AwaitCourse(&Course::closed, start)) {
    thread_.join();
    return absl::OkStatus();
  }
  thread_.detach();
  if (!looped) {
    left_behind_ = true;
    MutexLock lock(&listener_mutex_);
    listener_ = nullptr;
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "the World's end: ", looped ? "MPI_Finalize" : "a call of MPI", " has not returned within ",
      WaitText(limit_), " on node ", node_, " of ", num_nodes_, ": another process has died or ",
      looped ? "been stopped, or has not called it" : "been stopped, or MPI waits for it",
      "; end all processes"));
}

bool Progress::AwaitCourse(bool Course::* done, Clock::time_point start) {
  Course& course = *course_;
  MutexLock lock(&course.mutex);
  while (!(course.*done)) {
    const absl::Duration waited = absl::FromChrono(Clock::now() - start);
    if (waited >= limit_) break;
    course.changed.WaitFor(&course.mutex, std::min(kLook, limit_ - waited));
  }
  return course.*done;
}

absl::StatusOr<std::vector<std::string>> Progress::Gather(const std::string& call,
                                                          std::string bytes, absl::Duration limit) {
  MutexLock lock(&mutex_);
  if (!work_.broken.ok()) return CopyOf(work_.broken);
  work_.texts.push_back(Text(kGather, call, bytes));
  gathered_[node_].push_back({call, std::move(bytes)});
  waiting_ = true;
  wake_.Signal();
  absl::Status status = AwaitGathered(call, limit);
  waiting_ = false;
  if (!status.ok()) return status;

  std::vector<std::string> calls;
  std::vector<std::string> result;
  bool same = true;
  for (int node = 0; node < num_nodes_; ++node) {
    Gathered& theirs = gathered_[node].front();
    same = same && theirs.call == call;
    calls.push_back(absl::StrCat(theirs.call, " on node ", node));
    result.push_back(std::move(theirs.bytes));
    gathered_[node].pop_front();
  }
  if (same) return result;
  BreakLocked(absl::FailedPreconditionError(
      absl::StrCat("the nodes make different calls: ", absl::StrJoin(calls, ", "))));
  return CopyOf(work_.broken);
}

absl::Status Progress::AwaitGathered(const std::string& call, absl::Duration limit) {
  const Clock::time_point start = Clock::now();
  uint64_t turns = turns_;
  absl::Duration still = absl::ZeroDuration();  // that the thread has been in a turn, as seen here
  while (true) {
    if (!work_.broken.ok()) return CopyOf(work_.broken);
    std::vector<std::string> missing;
    for (int node = 0; node < num_nodes_; ++node) {
      if (gathered_[node].empty()) missing.push_back(NameLocked(node));
    }
    if (missing.empty()) return absl::OkStatus();
    const absl::Duration waited = absl::FromChrono(Clock::now() - start);
    if (waited >= limit) {
      BreakLocked(absl::DeadlineExceededError(absl::StrCat("node ", node_, " has waited ",
                                                           WaitText(waited), " in ", call, " for ",
                                                           absl::StrJoin(missing, ", "))));
      continue;
    }
    // The thread finds that a node is silent, unless it does not return from MPI itself.
    if (work_.silence > absl::ZeroDuration() && still >= work_.silence) {
      BreakLocked(absl::DeadlineExceededError(absl::StrCat(
          "node ", node_, ": a call of MPI has not returned for ", WaitText(still), " amid ", call,
          ": another process has died or been stopped, or MPI waits for it; end all processes")));
      continue;
    }
    const absl::Duration slice = std::min(kLook, limit - waited);
    changed_.WaitFor(&mutex_, slice);
    still = turns_ == turns ? still + slice : absl::ZeroDuration();
    turns = turns_;
  }
}

void Progress::WatchNodes(absl::Duration silence, std::vector<std::string> names) {
  MutexLock lock(&mutex_);
  work_.silence = silence;
  names_ = std::move(names);
}

absl::Status Progress::Realign(std::vector<std::vector<uint64_t>> posted, absl::Duration limit) {
  MutexLock lock(&mutex_);
  realign_ = std::move(posted);
  work_.realign = true;
  waiting_ = true;
  wake_.Signal();
  const Clock::time_point start = Clock::now();
  while (!realign_.empty() && work_.broken.ok()) {
    if (absl::FromChrono(Clock::now() - start) >= limit) {
      BreakLocked(absl::DeadlineExceededError(
          absl::StrCat("node ", node_,
                       ": what other nodes had sent before a failure has not "
                       "come within ",
                       WaitText(limit))));
      break;
    }
    changed_.WaitFor(&mutex_, kLook);
  }
  waiting_ = false;
  return CopyOf(work_.broken);
}

absl::Status Progress::Finish(absl::Duration limit) {
  if (const absl::Status status = Gather("the end of the World", "", limit).status();
      !status.ok()) {
    return status;
  }
  {
    MutexLock lock(&mutex_);
    work_.quiet = true;  // a node's last text is that of the following call
  }
  if (const absl::Status status = Gather("the last message", "", limit).status(); !status.ok()) {
    return status;
  }
  MutexLock lock(&mutex_);
  orderly_ = true;
  return absl::OkStatus();
}

void Progress::SetNumRails(int num_rails) {
  MutexLock lock(&mutex_);
  posted_.assign(num_rails, 0);
}

void Progress::Wake() {
  MutexLock lock(&mutex_);
  work_.awake = true;
  wake_.Signal();
}

void Progress::Post(PostedExchange exchange) {
  MutexLock lock(&mutex_);
  ++posted_[exchange.rail];
  work_.posted.push_back(std::move(exchange));
  wake_.Signal();
}

std::vector<uint64_t> Progress::Posted() const {
  MutexLock lock(&mutex_);
  return posted_;
}

void Progress::Announce(uint64_t run, const absl::Status& failure) {
  MutexLock lock(&mutex_);
  work_.texts.push_back(Text(kFailed, absl::StrCat(run), PackStatus(failure)));
  wake_.Signal();
}

void Progress::Break(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  BreakLocked(reason);
}

absl::Status Progress::broken() const {
  MutexLock lock(&mutex_);
  return CopyOf(work_.broken);
}

void Progress::BreakLocked(const absl::Status& reason) {
  if (!work_.broken.ok()) return;
  work_.broken = CopyOf(reason);
  work_.texts.push_back(Text(kBroken, PackStatus(reason)));
  wake_.Signal();
  changed_.SignalAll();
}

std::string Progress::NameLocked(int node) const {
  return names_.empty() ? absl::StrCat("node ", node) : names_[node];
}

// ---- the thread

void Progress::TellListener(absl::FunctionRef<void(Listener&)> tell) {
  MutexLock lock(&listener_mutex_);
  if (listener_ != nullptr) tell(*listener_);
}

void Progress::Thread(const std::shared_ptr<Course>& course, Progress* progress) {
  std::unique_ptr<Link> link;
  bool orderly = false;
  {
    absl::StatusOr<std::unique_ptr<Link>> opened = Link::Open(course->opening);
    MutexLock lock(&course->mutex);
    if (course->opening.given_up) return;  // there may be no Progress any more
    progress->Take(std::move(opened));
    course->opened = true;
    course->changed.SignalAll();
  }
  if (progress->link_ != nullptr) {
    orderly = progress->Loop();
    link = std::move(progress->link_);
  }
  {
    MutexLock lock(&course->mutex);
    course->looped = true;
    course->changed.SignalAll();
  }
  if (link != nullptr) link->Close(orderly);
  MutexLock lock(&course->mutex);
  course->closed = true;
  course->changed.SignalAll();
}

void Progress::Take(absl::StatusOr<std::unique_ptr<Link>> link) {
  MutexLock lock(&mutex_);
  if (!link.ok()) {
    start_status_ = CopyOf(link.status());
    return;
  }
  link_ = *std::move(link);
  node_ = link_->node();
  num_nodes_ = link_->num_nodes();
  num_cpus_ = AllowedCpus().size() / static_cast<size_t>(course_->opening.processes_on_host);
  gathered_.resize(num_nodes_);
  peers_.resize(num_nodes_);
}

bool Progress::Loop() {
  bool busy = false;
  Clock::time_point sleep = Clock::now();
  std::optional<Backoff> backoff(CoresForPolls());
  while (true) {
    Work work = TakeWork(busy);
    TellBroken(work);
    if (work.awake) sleep = Clock::now() + absl::ToChronoNanoseconds(kPollAfterWake);
    bool moved = !work.posted.empty() || work.awake;
    if (work.broken.ok()) {
      for (PostedExchange& exchange : work.posted) Begin(std::move(exchange));
    }
    moved = SendTexts(work) || moved;
    moved = ReceiveTexts() || moved;
    moved = (realigning_.empty() ? PollExchanges() : PollRealign()) || moved;
    WatchPeers(work);
    if (work.stop) break;
    busy = moved || IsExchanging() || Clock::now() < sleep;
    if (moved) {
      backoff.emplace(CoresForPolls());
    } else {
      backoff->Wait();
    }
  }
  const bool nothing_left = SendLast();
  MutexLock lock(&mutex_);
  return orderly_ && nothing_left;
}

Progress::Work Progress::TakeWork(bool busy) {
  MutexLock lock(&mutex_);
  ++turns_;
  const bool idle =
      !busy && !waiting_ && work_.posted.empty() && work_.texts.empty() && !work_.awake;
  if (idle && !work_.stop) wake_.WaitFor(&mutex_, kListen);
  Work taken;
  taken.posted.swap(work_.posted);
  taken.texts.swap(work_.texts);
  taken.silence = work_.silence;
  taken.broken = CopyOf(work_.broken);
  taken.realign = std::exchange(work_.realign, false);
  taken.quiet = work_.quiet;
  taken.awake = std::exchange(work_.awake, false);
  taken.stop = work_.stop;
  if (taken.realign) realigning_ = realign_;
  return taken;
}

void Progress::TellBroken(const Work& work) {
  if (work.broken.ok() || told_broken_) return;
  told_broken_ = true;
  TellListener([&](Listener& listener) { listener.OnBroken(work.broken); });
}

bool Progress::SendTexts(const Work& work) {
  // Also to lost nodes: one that goes on learns why the others have given it up.
  for (const std::string& text : work.texts) {
    for (int node = 0; node < num_nodes_; ++node) SendText(node, text);
  }
  // Those who wait for a node learn from this that it lives, though it may be busy.
  const Clock::time_point now = Clock::now();
  if (work.silence > absl::ZeroDuration() && !work.quiet &&
      absl::FromChrono(now - last_alive_) > work.silence / kSignsOfLife) {
    last_alive_ = now;
    for (int node = 0; node < num_nodes_; ++node) {
      // A node that does not receive is not given more and more.
      if (peers_[node].lost || !link_->HasSentTexts(node)) continue;
      SendText(node, Text(kAlive));
    }
  }
  return !work.texts.empty();
}

void Progress::SendText(int node, const std::string& text) {
  if (node == node_) return;
  if (const absl::Status sent = link_->SendText(node, text); !sent.ok()) {
    Lose(node, sent.message());
  }
}

bool Progress::ReceiveTexts() {
  bool received = false;
  for (int node = 0; node < num_nodes_; ++node) {
    while (node != node_ && !peers_[node].lost) {
      absl::StatusOr<std::optional<std::string>> text = link_->ReceiveText(node);
      if (!text.ok()) Lose(node, text.status().message());
      if (!text.ok() || !text->has_value()) break;
      peers_[node].last_heard = Clock::now();
      peers_[node].listened = absl::ZeroDuration();
      Receive(node, **text);
      received = true;
    }
  }
  return received;
}

void Progress::Receive(int node, const std::string& text) {
  const std::optional<std::vector<std::string>> fields = Unpack(text);
  if (!fields.has_value() || fields->size() != 3) {
    Lose(node, "it has sent a message that cannot be read");
    return;
  }
  const std::string& kind = (*fields)[0];
  if (kind == kGather) {
    MutexLock lock(&mutex_);
    gathered_[node].push_back({(*fields)[1], (*fields)[2]});
    changed_.SignalAll();
  } else if (kind == kFailed) {
    uint64_t run = 0;
    if (absl::SimpleAtoi((*fields)[1], &run)) {
      TellListener([&](Listener& listener) {
        listener.OnNodeFailed(node, run, UnpackStatus((*fields)[2]));
      });
    }
  } else if (kind == kBroken) {
    MutexLock lock(&mutex_);
    BreakLocked(UnpackStatus((*fields)[1]));
  }
}

void Progress::WatchPeers(const Work& work) {
  const Clock::time_point now = Clock::now();
  const absl::Duration since = absl::FromChrono(now - last_watch_);
  last_watch_ = now;
  if (work.silence <= absl::ZeroDuration() || work.quiet) {
    for (Peer& peer : peers_) {
      peer.last_heard = now;
      peer.listened = absl::ZeroDuration();
    }
    return;
  }
  // However long this thread has not run, it has listened once, to what was sent before. So a
  // machine that goes on after it has been suspended does not find all others dead, and one that is
  // slow finds those that are.
  const absl::Duration listened = std::min(since, work.silence / kSignsOfLife);
  for (int node = 0; node < num_nodes_; ++node) {
    Peer& peer = peers_[node];
    if (node == node_ || peer.lost) continue;
    peer.listened += listened;
    if (peer.listened > work.silence) {
      Lose(node,
           absl::StrCat("no sign of life for ", WaitText(absl::FromChrono(now - peer.last_heard))));
    }
  }
}

void Progress::Lose(int node, absl::string_view why) {
  peers_[node].lost = true;
  MutexLock lock(&mutex_);
  BreakLocked(WithLostNode(
      absl::UnavailableError(absl::StrCat(NameLocked(node), " has died or been stopped: ", why))));
}

bool Progress::SendLast() {
  const Clock::time_point start = Clock::now();
  const auto all_sent = [this] {
    bool sent = true;
    for (int node = 0; node < num_nodes_; ++node) {
      sent = sent && (peers_[node].lost || link_->HasSentTexts(node));
    }
    return sent;
  };
  Backoff backoff(Backoff::Cores::kShared);
  while (!all_sent() && absl::FromChrono(Clock::now() - start) < kLastTexts) backoff.Wait();
  left_unfinished_ = IsExchanging();
  return !left_unfinished_ && all_sent();
}

}  // namespace octet
