#include "tests/support/model_files.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace octet {

FileTensor NamedTensor(absl::string_view name, absl::string_view dtype, std::vector<int> shape,
                       size_t element_bytes) {
  FileTensor tensor = {
      .name = std::string(name), .dtype = std::string(dtype), .shape = std::move(shape)};
  size_t bytes = element_bytes;
  for (const int size : tensor.shape) bytes *= static_cast<size_t>(size);
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(tensor.name)));
  for (size_t i = 0; i < bytes; ++i) tensor.bytes.push_back(static_cast<char>(random()));
  return tensor;
}

std::string SafetensorsText(absl::string_view header, absl::string_view data) {
  std::string length;
  for (int byte = 0; byte < 8; ++byte) {
    length.push_back(static_cast<char>(uint64_t{header.size()} >> (8 * byte)));
  }
  return absl::StrCat(length, header, data);
}

std::string SafetensorsText(absl::Span<const FileTensor> tensors) {
  std::string data;
  std::vector<std::string> entries = {R"("__metadata__": {"format": "pt"})"};
  for (const FileTensor& tensor : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    entries.push_back(absl::StrCat("\"", tensor.name, "\": {\"dtype\": \"", tensor.dtype,
                                   "\", \"shape\": [", absl::StrJoin(tensor.shape, ", "),
                                   "], \"data_offsets\": [", begin, ", ", data.size(), "]}"));
  }
  return SafetensorsText(absl::StrCat("{", absl::StrJoin(entries, ", "), "}  "), data);
}

TestFolder::TestFolder() : path_(testing::TempDir() + "octet_model_XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "cannot create " << path_;
}

TestFolder::~TestFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string TestFolder::PathOf(absl::string_view file) const {
  return absl::StrCat(path_, "/", file);
}

void TestFolder::Write(absl::string_view file, absl::string_view text) const {
  std::ofstream out(PathOf(file), std::ios::binary);
  out << std::string(text);
  EXPECT_TRUE(out.good()) << file;
}

void TestFolder::Remove(absl::string_view file) const {
  EXPECT_TRUE(std::filesystem::remove(PathOf(file))) << file;
}

}  // namespace octet
