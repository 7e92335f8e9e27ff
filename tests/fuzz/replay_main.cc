// Stands in for libFuzzer where there is none: runs the target once for each file in the folders
// given. Flags are ignored.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "tools/support/atomic_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-') continue;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i], error)) {
      constexpr size_t kMostBytes = size_t{1} << 20;
      const absl::StatusOr<std::string> file = octet::ReadFile(entry.path(), kMostBytes);
      if (!file.ok()) {
        std::fprintf(stderr, "%s\n", std::string(file.status().message()).c_str());
        return 1;
      }
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(file->data()), file->size());
      ++files;
    }
  }
  std::printf("%d inputs\n", files);
  return files > 0 ? 0 : 1;
}
