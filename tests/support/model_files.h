// Model folders for tests: *.safetensors files made of tensors or of anything, and where to put
// them.
#ifndef OCTET_TESTS_SUPPORT_MODEL_FILES_H_
#define OCTET_TESTS_SUPPORT_MODEL_FILES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<int> shape;
  std::string bytes = {};
};

// Returns a tensor of `dtype` whose bytes, `element_bytes` for an element, tell its name: any two
// names have other ones.
FileTensor NamedTensor(absl::string_view name, absl::string_view dtype, std::vector<int> shape,
                       size_t element_bytes);

// Returns a file of the header's length, the header and the data, whether they fit or not.
std::string SafetensorsText(absl::string_view header, absl::string_view data);
// Returns a file of these tensors.
std::string SafetensorsText(absl::Span<const FileTensor> tensors);

// A folder that is empty at first and gone with the object.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathOf(absl::string_view file) const;
  // Writes a file, in place of an older one.
  void Write(absl::string_view file, absl::string_view text) const;
  void Remove(absl::string_view file) const;

 private:
  std::string path_;
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_MODEL_FILES_H_
