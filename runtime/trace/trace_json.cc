#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/trace.h"

namespace octet {
namespace {

// Returns the length of the UTF-8 sequence at the front of `text` (not empty), 0 if it is invalid.
size_t Utf8Length(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t length = byte(0) < 0x80   ? 1
                        : byte(0) < 0xc2 ? 0
                        : byte(0) < 0xe0 ? 2
                        : byte(0) < 0xf0 ? 3
                        : byte(0) < 0xf5 ? 4
                                         : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Rejects overlong forms, surrogates and code points beyond the last one.
  if ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) >= 0xa0) ||
      (byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) >= 0x90)) {
    return 0;
  }
  return length;
}

// Returns a JSON string; bytes that are not UTF-8 become U+FFFD.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto c = static_cast<uint8_t>(text[0]);
    const size_t length = Utf8Length(text);
    if (length == 0) {
      absl::StrAppend(&out, "\\ufffd");
    } else if (c == '"' || c == '\\') {
      out += {'\\', text[0]};
    } else if (c < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      absl::StrAppend(&out, text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out + "\"";
}

std::string Metadata(absl::string_view what, int pid, int tid, absl::string_view name) {
  return absl::StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid, ",\"tid\":", tid,
                      ",\"args\":{\"name\":", Quoted(name), "}}");
}

// Returns `what`, with name `index` behind it if there is one.
template <typename Name>
std::string Named(std::string what, absl::Span<const Name> names, int index) {
  if (static_cast<size_t>(index) < names.size()) absl::StrAppend(&what, " (", names[index], ")");
  return what;
}

}  // namespace

// Writes the text piece by piece: a tree of a million events would take many times their memory.
std::string TraceJson(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                      const TraceNames& names) {
  std::string json = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  auto separate = [&json, first = true]() mutable {
    absl::StrAppend(&json, first ? "\n" : ",\n");
    first = false;
  };

  int tracks = std::max(1, static_cast<int>(names.tracks.size()));
  std::set<std::tuple<int, int, int>> all_tracks;
  for (const TraceSlice& slice : slices) {
    all_tracks.emplace(slice.rank, slice.block, slice.track);
    tracks = std::max(tracks, slice.track + 1);
  }
  int named_rank = -1;
  for (const auto& [rank, block, track] : all_tracks) {
    if (rank != named_rank) {
      separate();
      absl::StrAppend(&json, Metadata("process_name", rank, 0,
                                      Named(absl::StrCat("rank ", rank), names.gpus, rank)));
      named_rank = rank;
    }
    separate();
    absl::StrAppend(&json, Metadata("thread_name", rank, block * tracks + track,
                                    Named(absl::StrCat("block ", block), names.tracks, track)));
  }

  for (const TraceSlice& slice : slices) {
    const std::string number = absl::StrCat("tag ", slice.tag);
    const TraceTag tag = slice.tag < tags.size() ? tags[slice.tag] : TraceTag{.name = number};
    separate();
    absl::StrAppend(&json, "{\"ph\":\"X\",\"name\":", Quoted(tag.name), ",\"pid\":", slice.rank,
                    ",\"tid\":", slice.block * tracks + slice.track);
    if (!tag.phase.name.empty()) absl::StrAppend(&json, ",\"cat\":", Quoted(tag.phase.name));
    absl::StrAppendFormat(&json, ",\"ts\":%.3f,\"dur\":%.3f,\"args\":{", slice.start_us,
                          slice.duration_us);
    absl::string_view comma;
    if (!tag.detail.is_peer || slice.detail != kNoTraceDetail) {
      absl::StrAppend(&json, Quoted(tag.detail.name), ":", slice.detail);
      comma = ",";
    }
    for (size_t i = 0; i < tag.more_details.size() && !tag.more_details[i].empty(); ++i) {
      absl::StrAppend(&json, comma, Quoted(tag.more_details[i]), ":", slice.more_details[i]);
      comma = ",";
    }
    absl::StrAppend(&json, "}}");
  }
  absl::StrAppend(&json, "\n]}\n");
  return json;
}

}  // namespace octet
