#include "machine/capture.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "machine/stream.h"

namespace octet::emulation {

Capture::Lane& Capture::LaneOf(const Stream* stream) {
  return *std::ranges::find(lanes, stream, &Lane::stream);
}

void Capture::Append(const Stream* stream, Operation operation) {
  Lane& lane = LaneOf(stream);
  const auto index = static_cast<size_t>(&lane - lanes.data());
  using Kind = Operation::Kind;
  if (operation.kind != Kind::kRecord && operation.kind != Kind::kWait) {
    lane.before.resize(std::max(lane.before.size(), index + 1));
    ++lane.before[index];
  }
  operations.push_back({index, std::move(operation)});
}

void Capture::Join(Lane& lane, const std::vector<size_t>& before) {
  lane.before.resize(std::max(lane.before.size(), before.size()));
  for (size_t i = 0; i < before.size(); ++i) lane.before[i] = std::max(lane.before[i], before[i]);
}

bool Capture::IsJoined() const {
  Lane all = lanes.front();
  for (const Lane& lane : lanes) Join(all, lane.before);
  return all.before == lanes.front().before;
}

void Capture::Release() {
  for (const Lane& lane : lanes) {
    if (lane.stream != nullptr) lane.stream->capture = nullptr;
  }
}

}  // namespace octet::emulation
