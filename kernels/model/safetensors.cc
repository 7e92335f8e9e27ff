#include "kernels/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/model/lfs_pointer.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie in files");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr absl::string_view kMetadata = "__metadata__";

struct DtypeBits {
  absl::string_view dtype;
  uint64_t bits;  // of an element
};
constexpr auto kDtypes = std::to_array<DtypeBits>({
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E4M3", 8},     {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"F8_E4M3FNUZ", 8},
    {"I16", 16},    {"U16", 16}, {"F16", 16},    {"F8_E5M2FNUZ", 8}, {"BF16", 16},
    {"I32", 32},    {"U32", 32}, {"F32", 32},    {"C64", 64},        {"F64", 64},
    {"I64", 64},    {"U64", 64},
});

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("damaged header: ", what));
}

// A tensor as the header describes it: begin and end are data_offsets.
struct Entry {
  SafetensorsTensor tensor;
  bool has_dtype = false;
  bool has_shape = false;
  std::vector<uint64_t> offsets;
};

absl::Status WrongTensor(const SafetensorsTensor& tensor, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", QuotedName(tensor.name), ": ", what));
}

// Returns the bytes of the elements, or nothing if they are too many to count or end within a byte.
std::optional<uint64_t> BytesOf(const SafetensorsTensor& tensor, uint64_t bits) {
  uint64_t product = bits;
  for (const uint64_t size : tensor.shape) {
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return product % 8 == 0 ? std::optional(product / 8) : std::nullopt;
}

// Completes `entry.tensor` if all that the header says of it fits, but for where it lies.
absl::Status Complete(Entry& entry) {
  SafetensorsTensor& tensor = entry.tensor;
  if (!entry.has_dtype) return WrongTensor(tensor, "it has no dtype");
  if (!entry.has_shape) return WrongTensor(tensor, "it has no shape");
  const auto dtype = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeBits& known) {
    return known.dtype == tensor.dtype;
  });
  if (dtype == kDtypes.end()) {
    return WrongTensor(tensor, absl::StrCat("unknown dtype ", QuotedName(tensor.dtype)));
  }
  if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1]) {
    return WrongTensor(tensor, "data_offsets must be [begin, end]");
  }
  tensor.begin = entry.offsets[0];
  tensor.end = entry.offsets[1];
  const std::optional<uint64_t> bytes = BytesOf(tensor, dtype->bits);
  if (!bytes.has_value()) {
    return WrongTensor(tensor, "its shape has too many elements, or ends within a byte");
  }
  if (*bytes != tensor.end - tensor.begin) {
    return WrongTensor(tensor,
                       absl::StrCat("dtype and shape say ", *bytes, " bytes, and data_offsets ",
                                    tensor.end - tensor.begin));
  }
  return absl::OkStatus();
}

using Json = nlohmann::json;

// Takes the header's JSON as nlohmann_json's parser comes upon it. No tree is built, so that
// neither depth nor size of the JSON costs memory, and names that come twice are seen. Functions
// return false, with status(), to stop.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  const absl::Status& status() const { return status_; }
  std::vector<SafetensorsTensor> TakeTensors() { return std::move(tensors_); }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool /*value*/) override { return Unexpected("a truth value"); }
  bool number_integer(int64_t value) override { return Unexpected(absl::StrCat(value)); }
  bool number_float(double /*value*/, const std::string& text) override {
    return Unexpected(QuotedName(text));
  }
  bool binary(Json::binary_t& /*value*/) override { return Unexpected("binary data"); }

  bool number_unsigned(uint64_t value) override {
    switch (place_) {
      case Place::kShape:
        entry_.tensor.shape.push_back(value);
        return true;
      case Place::kOffsets:
        entry_.offsets.push_back(value);
        return true;
      default:
        return Unexpected(absl::StrCat(value));
    }
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || member_ != Member::kDtype) return Unexpected(QuotedName(value));
    entry_.tensor.dtype = value;
    entry_.has_dtype = true;
    member_ = Member::kNone;
    return true;
  }

  bool start_object(size_t /*elements*/) override {
    switch (place_) {
      case Place::kFile:
        place_ = Place::kHeader;
        return true;
      case Place::kHeader:
        place_ = entry_.tensor.name == kMetadata ? Place::kMetadata : Place::kTensor;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    switch (place_) {
      case Place::kHeader:
        entry_ = Entry();
        entry_.tensor.name = name;
        if (names_.insert(name).second) return true;
        return Stop(Damaged(absl::StrCat(QuotedName(name), " comes twice")));
      case Place::kTensor:
        return TensorKey(name);
      default:
        return true;  // of the metadata
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      absl::Status status = Complete(entry_);
      if (!status.ok()) return Stop(std::move(status));
      tensors_.push_back(std::move(entry_.tensor));
    }
    place_ = place_ == Place::kHeader ? Place::kFile : Place::kHeader;
    return true;
  }

  bool start_array(size_t /*elements*/) override {
    if (place_ != Place::kTensor || (member_ != Member::kShape && member_ != Member::kOffsets)) {
      return Unexpected("a list");
    }
    place_ = member_ == Member::kShape ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool end_array() override {
    entry_.has_shape |= place_ == Place::kShape;
    place_ = Place::kTensor;
    member_ = Member::kNone;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return Stop(Damaged(absl::StrCat("it is no JSON at byte ", position)));
  }

 private:
  enum class Place { kFile, kHeader, kMetadata, kTensor, kShape, kOffsets };
  enum class Member { kNone, kDtype, kShape, kOffsets };

  bool Stop(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  bool TensorKey(absl::string_view name) {
    const bool first = (name == "dtype" && !entry_.has_dtype) ||
                       (name == "shape" && !entry_.has_shape) ||
                       (name == "data_offsets" && entry_.offsets.empty());
    if (!first) {
      return Stop(WrongTensor(
          entry_.tensor, absl::StrCat("member ", QuotedName(name), " is unknown or comes twice")));
    }
    member_ = name == "dtype"   ? Member::kDtype
              : name == "shape" ? Member::kShape
                                : Member::kOffsets;
    return true;
  }

  bool Unexpected(absl::string_view what) {
    switch (place_) {
      case Place::kFile:
        return Stop(Damaged(absl::StrCat("it must be a JSON object, and is ", what)));
      case Place::kHeader:
        return Stop(
            WrongTensor(entry_.tensor, absl::StrCat("it must be an object, and is ", what)));
      case Place::kMetadata:
        return Stop(Damaged(absl::StrCat(kMetadata, " must have strings, and has ", what)));
      case Place::kTensor:
        return Stop(WrongTensor(
            entry_.tensor, absl::StrCat(member_ == Member::kDtype   ? "dtype must be a string"
                                        : member_ == Member::kShape ? "shape must be a list"
                                                                    : "data_offsets must be a list",
                                        ", and is ", what)));
      case Place::kShape:
      case Place::kOffsets:
        break;
    }
    return Stop(
        WrongTensor(entry_.tensor, absl::StrCat(place_ == Place::kShape ? "shape" : "data_offsets",
                                                " must have whole numbers, and has ", what)));
  }

  Place place_ = Place::kFile;
  Member member_ = Member::kNone;  // whose value comes next
  Entry entry_;                    // the one that is being read
  std::unordered_set<std::string> names_;
  std::vector<SafetensorsTensor> tensors_;
  absl::Status status_;
};

// Sorts the tensors and makes offsets into the data such into the file, or says where they do not
// cover `data_bytes` bytes exactly once.
absl::Status PlaceInFile(std::vector<SafetensorsTensor>& tensors, uint64_t data_begin,
                         uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  uint64_t end = 0;
  const SafetensorsTensor* before = nullptr;
  for (SafetensorsTensor& tensor : tensors) {
    if (tensor.end > data_bytes) {
      return WrongTensor(tensor, absl::StrCat("its data end at byte ", tensor.end,
                                              " of the data, of which the file has ", data_bytes));
    }
    if (tensor.begin < end) {
      return WrongTensor(
          tensor, absl::StrCat("its data overlap those of tensor ", QuotedName(before->name)));
    }
    if (tensor.begin > end) {
      return WrongTensor(tensor, absl::StrCat("its data begin at byte ", tensor.begin,
                                              ", and those before it end at ", end));
    }
    end = tensor.end;
    before = &tensor;
  }
  if (end != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tensors' data end at byte ", end, " of the data, of which the file has ", data_bytes));
  }
  for (SafetensorsTensor& tensor : tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return absl::OkStatus();
}

// A file descriptor, closed at the end. Opening a pipe does not wait for who writes it.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status CannotRead(const std::string& path, int error) {
  const std::string what = absl::StrCat("cannot read ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(what) : absl::InvalidArgumentError(what);
}

}  // namespace

std::string QuotedName(absl::string_view name) {
  constexpr size_t kMost = 200;
  return absl::StrCat("'", absl::Utf8SafeCEscape(name.substr(0, kMost)),
                      name.size() > kMost ? "..." : "", "'");
}

absl::StatusOr<std::vector<SafetensorsTensor>> ParseSafetensorsHeader(absl::string_view beginning,
                                                                      uint64_t file_bytes) {
  if (beginning.size() < kLengthBytes) {
    return Damaged(absl::StrCat("the file has ", beginning.size(),
                                " bytes, and the header's length alone is 8"));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, beginning.data(), sizeof(header_bytes));
  if (header_bytes > kMostHeaderBytes) {
    return Damaged(absl::StrCat("it says that it has ", header_bytes,
                                " bytes, and the format allows ", kMostHeaderBytes));
  }
  if (header_bytes > beginning.size() - kLengthBytes || header_bytes + kLengthBytes > file_bytes) {
    return Damaged(absl::StrCat("it says that it has ", header_bytes, " bytes, and the file has ",
                                file_bytes, " in all"));
  }
  const absl::string_view header = beginning.substr(kLengthBytes, header_bytes);
  HeaderReader reader;
  if (!Json::sax_parse(header.begin(), header.end(), &reader)) return reader.status();
  std::vector<SafetensorsTensor> tensors = reader.TakeTensors();
  const uint64_t data_begin = kLengthBytes + header_bytes;
  OCTET_RETURN_IF_ERROR(PlaceInFile(tensors, data_begin, file_bytes - data_begin));
  return tensors;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const OpenFile open_file(path);
  if (open_file.fd() < 0) return CannotRead(path, errno);
  struct stat status = {};
  if (fstat(open_file.fd(), &status) != 0) return CannotRead(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": it is no file"));
  }
  const auto size = static_cast<size_t>(status.st_size);
  const std::byte* bytes = nullptr;
  if (size > 0) {  // nothing cannot be mapped
    void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, open_file.fd(), 0);
    if (mapped == MAP_FAILED) return CannotRead(path, errno);
    bytes = static_cast<const std::byte*>(mapped);
  }
  auto file = std::unique_ptr<SafetensorsFile>(new SafetensorsFile(path, bytes, size));
  const absl::string_view text(reinterpret_cast<const char*>(bytes), size);
  OCTET_RETURN_IF_ERROR(CheckNoLfsPointer(text, path));
  absl::StatusOr<std::vector<SafetensorsTensor>> tensors = ParseSafetensorsHeader(text, size);
  if (!tensors.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tensors.status().message()));
  }
  file->tensors_ = *std::move(tensors);
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (bytes_ != nullptr) munmap(const_cast<std::byte*>(bytes_), size_);
}

}  // namespace octet
