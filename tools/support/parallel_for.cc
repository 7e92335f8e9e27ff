#include "tools/support/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace octet {
namespace {

constexpr size_t kMostThreads = 64;

}  // namespace

void ParallelFor(size_t n, absl::FunctionRef<void(size_t)> body) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) body(i);
  };
  const size_t cores = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  std::vector<std::thread> helpers;
  while (helpers.size() + 1 < std::min(cores, n)) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // the system has no more threads: those that there are do all of it
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace octet
