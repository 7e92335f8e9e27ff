#include "tools/measure/step/step_text.h"

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace octet {
namespace {

using Json = nlohmann::json;

// Both directions: `io` takes each member in turn.
template <typename Io, typename RankResult>
void ForMembers(Io& io, RankResult& rank) {
  io(rank.num_tokens);
  for (auto* each : {&rank.rows_sent, &rank.rows_received, &rank.logical_bytes,
                     &rank.dispatch_logical_bytes, &rank.wire_bytes, &rank.dispatch_wire_bytes,
                     &rank.rail_rows, &rank.rail_bytes, &rank.dispatch_rail_bytes}) {
    io(*each);
  }
  io(rank.all_us);
  for (auto& us : rank.phase_us) io(us);
  for (auto& us : rank.call_us) io(us);
  io(rank.verification.bitwise);
  io(rank.verification.within_tolerance);
  io(rank.verification.max_error);
  io(rank.verification.wrong_rows);
  io(rank.verification.wrong_tokens);
  io(rank.verification.first);
}

class Writer {
 public:
  explicit Writer(Json& json) : json_(json) {}
  template <typename T>
  void operator()(const T& value) {
    json_.push_back(value);
  }
  // As bits: JSON has no infinity.
  void operator()(double value) { json_.push_back(std::bit_cast<uint64_t>(value)); }

 private:
  Json& json_;
};

// Takes a value of another type, or that is not there, as a mistake in the text.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  void operator()(int& value) { Take(&Json::is_number_integer, value); }
  void operator()(int64_t& value) { Take(&Json::is_number_integer, value); }
  void operator()(bool& value) { Take(&Json::is_boolean, value); }
  void operator()(std::string& value) { Take(&Json::is_string, value); }
  void operator()(double& value) {
    uint64_t bits = 0;
    Take(&Json::is_number_unsigned, bits);
    value = std::bit_cast<double>(bits);
  }
  bool ok() const { return ok_ && next_ == json_.size(); }

 private:
  template <typename T>
  void Take(bool (Json::*is_type)() const noexcept, T& value) {
    ok_ = ok_ && json_.is_array() && next_ < json_.size() && (json_[next_].*is_type)();
    if (ok_) value = json_[next_++].template get<T>();
  }

  const Json& json_;
  size_t next_ = 0;
  bool ok_ = true;
};

}  // namespace

std::string StepResultText(const StepResult& step) {
  Json head = Json::array();
  Writer times(head);
  times(step.all_us);
  times(step.wall_us);
  Json json = Json::array({head});
  for (const RankStepResult& rank : step.ranks) {
    Json& values = json.emplace_back(Json::array());
    Writer writer(values);
    ForMembers(writer, rank);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<StepResult> ParseStepResult(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  StepResult step;
  bool good = json.is_array() && !json.empty();
  if (good) {
    Reader times(json[0]);
    times(step.all_us);
    times(step.wall_us);
    good = times.ok();
  }
  for (size_t i = 1; good && i < json.size(); ++i) {
    Reader reader(json[i]);
    ForMembers(reader, step.ranks.emplace_back());
    good = reader.ok();
  }
  if (good) return step;
  return absl::InternalError(absl::StrCat("these are no results of a step: ", text.substr(0, 200)));
}

}  // namespace octet
