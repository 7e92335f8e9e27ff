#include "machine/report.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "machine/machine.h"
#include "machine/symbols.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

// Formats numbers: "block 3", "blocks 0-3,7".
std::string Numbers(const char* noun, const std::vector<int>& sorted) {
  std::string text;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int first = sorted[i];
    while (i + 1 < sorted.size() && sorted[i + 1] == sorted[i] + 1) ++i;
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (sorted[i] != first) text += '-' + std::to_string(sorted[i]);
  }
  return std::string(noun) + (sorted.size() > 1 ? "s " : " ") + text;
}

std::vector<int> LanesIn(LaneMask mask) {
  std::vector<int> lanes;
  for (; mask != 0; mask &= mask - 1) lanes.push_back(LowestLane(mask));
  return lanes;
}

std::string Seconds(uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ns) * 1e-9);
  return text;
}

// A wave that computes much, or lacks a CPU, has its thread for some milliseconds.
constexpr uint64_t kShortestHoldNs = 200'000'000;

std::string ForRank(const Lane& lane) {
  return lane.awaited_rank < 0 ? "" : ", for rank " + std::to_string(lane.awaited_rank);
}

std::string DescribeWait(const Lane& lane) {
  const Wave& wave = *lane.wave;
  switch (lane.waiting) {
    case Waiting::kNot:
      return (wave.unstarted & LaneBit(lane.lane)) != 0 ? "not started" : "running";
    case Waiting::kWave:
      return std::string("waits for its wave in ") + wave.collective + " " +
             DescribeWhere(lane.where);
    case Waiting::kBlock:
      return "waits for its block in __syncthreads " + DescribeWhere(lane.where);
    case Waiting::kGrid:
      return "waits for its grid in this_grid().sync() " + DescribeWhere(lane.where);
    case Waiting::kValue: {
      char value[64];
      if (lane.poll_bytes == 16) {
        std::snprintf(value, sizeof(value), "0x%llx, 0x%llx",
                      static_cast<unsigned long long>(lane.poll_value[0]),
                      static_cast<unsigned long long>(lane.poll_value[1]));
      } else {
        std::snprintf(value, sizeof(value), "%llu",
                      static_cast<unsigned long long>(lane.poll_value[0]));
      }
      return "waits for the value " + std::string(value) + " to change at " +
             wave.block->grid->device->machine->memory.Describe(lane.poll_address) + " " +
             DescribeWhere(lane.where) + ForRank(lane);
    }
    case Waiting::kAnything:
      return "polls " + DescribeWhere(lane.where) + ForRank(lane);
    case Waiting::kGone:
      return "has left the kernel";
  }
  return "";
}

std::string DescribeKernel(const Grid& grid) {
  return "device " + std::to_string(grid.device->id) + ", kernel " + FunctionName(grid.kernel);
}

// Lanes that do the same thing.
struct Group {
  std::string text;
  const char* file = nullptr;  // where they wait
  unsigned line = 0;
  LaneMask lanes = 0;
  std::vector<int> waves;
  std::vector<int> blocks;
};

// The maximum number of lines for waits at one place for different values.
constexpr int kLinesOfAPlace = 4;

// Groups the lanes of each wave by what they do, then the waves and blocks in which the same lanes
// do the same thing.
std::vector<Group> GroupLanes(const Grid& grid) {
  std::vector<Group> groups;
  for (const auto& block : grid.blocks) {
    std::vector<Group> of_block;
    for (const Wave& wave : block->waves) {
      std::map<std::string, Group> of_wave;
      for (int i = 0; i < wave.num_lanes; ++i) {
        const Lane& lane = wave.lanes[i];
        if (lane.waiting == Waiting::kGone) continue;
        Group& group = of_wave[DescribeWait(lane)];
        group.lanes |= LaneBit(i);
        if (lane.waiting != Waiting::kNot) {
          group.file = lane.where.file_name();
          group.line = lane.where.line();
        }
      }
      for (auto& [text, group] : of_wave) {
        group.text = text;
        const auto same = std::ranges::find_if(of_block, [&group = group](const Group& other) {
          return other.text == group.text && other.lanes == group.lanes;
        });
        if (same == of_block.end()) {
          of_block.push_back(group);
          of_block.back().waves = {wave.index};
        } else {
          same->waves.push_back(wave.index);
        }
      }
    }
    for (Group& group : of_block) {
      const auto same = std::ranges::find_if(groups, [&group](const Group& other) {
        return other.text == group.text && other.lanes == group.lanes && other.waves == group.waves;
      });
      const auto number = static_cast<int>(block->number);
      if (same == groups.end()) {
        group.blocks = {number};
        groups.push_back(std::move(group));
      } else {
        same->blocks.push_back(number);
      }
    }
  }
  return groups;
}

}  // namespace

std::string DescribeWhere(const Location& where) {
  const char* file = where.file_name();
  if (file == nullptr || *file == '\0') return "";
  const char* slash = std::strrchr(file, '/');
  return std::string("(") + (slash != nullptr ? slash + 1 : file) + ":" +
         std::to_string(where.line()) + ")";
}

std::string DescribeLane(const Lane& lane) {
  const Block& block = *lane.wave->block;
  return DescribeKernel(*block.grid) + ", block " + std::to_string(block.number) + ", wave " +
         std::to_string(lane.wave_index) + ", lane " + std::to_string(lane.lane);
}

std::string DescribeTurn(const Turn& turn) {
  return "device " + std::to_string(turn.device) + ", kernel " + FunctionName(turn.kernel) +
         " has run for " + Seconds(turn.ns) + " without a wait that lets anything else run";
}

std::string DescribeHold(const Device& device) {
  const std::optional<Turn> turn = device.worker != nullptr ? device.worker->turn() : std::nullopt;
  if (!turn.has_value() || turn->ns < kShortestHoldNs) return "";
  const std::string kernel = "kernel " + FunctionName(turn->kernel);
  if (turn->device == device.id) {
    return kernel + " has held its thread for " + Seconds(turn->ns);
  }
  return "device " + std::to_string(device.id) + " has had no chance to run: " + kernel +
         " of device " + std::to_string(turn->device) + " has held the thread of both for " +
         Seconds(turn->ns);
}

std::string DescribeGrid(const Grid& grid) {
  std::string report;
  std::map<std::pair<std::string, unsigned>, int> lines;    // per place
  std::map<std::pair<std::string, unsigned>, size_t> more;  // lanes
  for (const Group& group : GroupLanes(grid)) {
    const auto place =
        std::make_pair(std::string(group.file != nullptr ? group.file : ""), group.line);
    const std::vector<int> lanes = LanesIn(group.lanes);
    if (++lines[place] > kLinesOfAPlace) {
      more[place] += lanes.size() * group.waves.size() * group.blocks.size();
      continue;
    }
    report += "  " + DescribeKernel(grid) + ", " + Numbers("block", group.blocks) + ", " +
              Numbers("wave", group.waves) + ", " + Numbers("lane", lanes) + ": " + group.text +
              "\n";
  }
  for (const auto& [place, count] : more) {
    const size_t slash = place.first.rfind('/');
    report += "  " + DescribeKernel(grid) + ": " + std::to_string(count) + " lanes more at (" +
              place.first.substr(slash == std::string::npos ? 0 : slash + 1) + ":" +
              std::to_string(place.second) + ")\n";
  }
  return report;
}

}  // namespace octet::emulation
