// *.safetensors files: what is read of a good one, and what is said of others.
#include "kernels/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/model_files.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::StatusOr<std::vector<SafetensorsTensor>> Parse(absl::string_view file) {
  return ParseSafetensorsHeader(file, file.size());
}

// Returns an entry of a header.
std::string Entry(absl::string_view name, absl::string_view dtype, absl::string_view shape,
                  absl::string_view offsets) {
  return absl::StrCat("\"", name, "\": {\"dtype\": \"", dtype, "\", \"shape\": ", shape,
                      ", \"data_offsets\": ", offsets, "}");
}

TEST(Safetensors, TensorsComeInTheOrderOfTheirData) {
  const std::string header = absl::StrCat(
      "{", Entry("b", "F32", "[2, 1]", "[6, 14]"), R"(, "__metadata__": {"a": "b"}, )",
      Entry("scalar", "BF16", "[]", "[14, 16]"), ", ", Entry("a", "F8_E4M3", "[2, 3]", "[0, 6]"),
      ", ", Entry("none", "I64", "[4, 0]", "[6, 6]"), "}   ");
  const auto tensors = Parse(SafetensorsText(header, std::string(16, 'x')));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_THAT(*tensors, SizeIs(4));
  const uint64_t data = 8 + header.size();
  const SafetensorsTensor& a = (*tensors)[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, "F8_E4M3");
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.begin, data);
  EXPECT_EQ(a.end, data + 6);
  EXPECT_EQ((*tensors)[1].name, "none");
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(4, 0));
  EXPECT_EQ((*tensors)[1].begin, (*tensors)[1].end);
  EXPECT_EQ((*tensors)[2].name, "b");
  EXPECT_EQ((*tensors)[2].begin, data + 6);
  EXPECT_EQ((*tensors)[2].end, data + 14);
  EXPECT_EQ((*tensors)[3].name, "scalar");
  EXPECT_THAT((*tensors)[3].shape, IsEmpty());
  EXPECT_EQ((*tensors)[3].end, data + 16);
}

TEST(Safetensors, AFileMayHaveNoTensors) {
  const auto tensors = Parse(SafetensorsText("{}      ", ""));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_THAT(*tensors, IsEmpty());
}

TEST(Safetensors, EveryDtypeHasItsSize) {
  const std::vector<std::pair<std::string, int>> bytes_of_eight = {
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8},     {"F8_E4M3FNUZ", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},        {"U16", 16}, {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},        {"F32", 32}, {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  for (const auto& [dtype, bytes] : bytes_of_eight) {
    const std::string header =
        absl::StrCat("{", Entry("t", dtype, "[2, 4]", absl::StrCat("[0, ", bytes, "]")), "}");
    const auto tensors = Parse(SafetensorsText(header, std::string(bytes, 'x')));
    EXPECT_TRUE(tensors.ok()) << tensors.status();
  }
}

TEST(Safetensors, TheHeaderAloneIsEnough) {
  const std::string header =
      absl::StrCat("{", Entry("huge", "F32", "[1048576, 1048576]", "[0, 4398046511104]"), "}");
  const std::string beginning = SafetensorsText(header, "");
  const uint64_t data_bytes = uint64_t{1} << 42;
  EXPECT_TRUE(ParseSafetensorsHeader(beginning, beginning.size() + data_bytes).ok());
  EXPECT_FALSE(ParseSafetensorsHeader(beginning, beginning.size() + data_bytes - 1).ok());
}

struct Refused {
  std::string header;
  size_t data_bytes = 0;
  std::string message;  // a part of it
};

TEST(Safetensors, DamagedHeadersAreRefused) {
  const std::string big = "18446744073709551615";  // 2^64 - 1
  const std::vector<Refused> all = {
      {"", 0, "damaged header: it is no JSON at byte 1"},
      {R"({"t": )", 0, "it is no JSON at byte"},
      {"{} {}", 0, "it is no JSON at byte"},
      {"{\"\xff\": {}}", 0, "it is no JSON at byte"},
      {"[]", 0, "it must be a JSON object, and is a list"},
      {"3", 0, "it must be a JSON object, and is 3"},
      {R"({"t": 3})", 0, "tensor 't': it must be an object, and is 3"},
      {R"({"t": null})", 0, "tensor 't': it must be an object, and is null"},
      {R"({"t": [1]})", 0, "tensor 't': it must be an object, and is a list"},
      {R"({"__metadata__": {"a": 1}})", 0, "__metadata__ must have strings, and has 1"},
      {R"({"__metadata__": {"a": {}}})", 0, "__metadata__ must have strings, and has an object"},
      {R"({"__metadata__": {}, "__metadata__": {}})", 0, "'__metadata__' comes twice"},
      {R"({"t": {}})", 0, "tensor 't': it has no dtype"},
      {R"({"t": {"dtype": "F32"}})", 0, "tensor 't': it has no shape"},
      {R"({"t": {"dtype": "F32", "shape": []}})", 0, "data_offsets must be [begin, end]"},
      {R"({"t": {"dtype": "F32", "dtype": "F32"}})", 0, "'dtype' is unknown or comes twice"},
      {R"({"t": {"shape": [], "shape": []}})", 0, "'shape' is unknown or comes twice"},
      {R"({"t": {"data_offsets": [0, 4], "data_offsets": [0, 4]}})", 4,
       "'data_offsets' is unknown or comes twice"},
      {R"({"t": {"strides": [1]}})", 0, "tensor 't': member 'strides' is unknown or comes twice"},
      {R"({"t": {"dtype": 4}})", 0, "tensor 't': dtype must be a string, and is 4"},
      {R"({"t": {"dtype": ["F32"]}})", 0, "tensor 't': dtype must be a string, and is a list"},
      {R"({"t": {"shape": 4}})", 0, "tensor 't': shape must be a list, and is 4"},
      {R"({"t": {"shape": {}}})", 0, "tensor 't': shape must be a list, and is an object"},
      {R"({"t": {"shape": "F32"}})", 0, "tensor 't': shape must be a list, and is 'F32'"},
      {R"({"t": {"data_offsets": true}})", 0, "data_offsets must be a list, and is a truth value"},
      {R"({"t": {"shape": [-1]}})", 0, "shape must have whole numbers, and has -1"},
      {R"({"t": {"shape": [1.5]}})", 0, "shape must have whole numbers, and has '1.5'"},
      {R"({"t": {"shape": [18446744073709551616]}})", 0, "shape must have whole numbers, and has"},
      {R"({"t": {"shape": [[1]]}})", 0, "shape must have whole numbers, and has a list"},
      {R"({"t": {"shape": ["1"]}})", 0, "shape must have whole numbers, and has '1'"},
      {R"({"t": {"data_offsets": [0, -4]}})", 0,
       "data_offsets must have whole numbers, and has -4"},
      {"{" + Entry("t", "F31", "[1]", "[0, 4]") + "}", 4, "tensor 't': unknown dtype 'F31'"},
      {"{" + Entry("t", "F32", "[1]", "[0]") + "}", 4, "data_offsets must be [begin, end]"},
      {"{" + Entry("t", "F32", "[1]", "[0, 4, 8]") + "}", 4, "data_offsets must be [begin, end]"},
      {"{" + Entry("t", "F32", "[1]", "[4, 0]") + "}", 4, "data_offsets must be [begin, end]"},
      {"{" + Entry("t", "F32", "[2]", "[0, 4]") + "}", 4, "say 8 bytes, and data_offsets 4"},
      {"{" + Entry("t", "F32", "[]", "[0, 0]") + "}", 0, "say 4 bytes, and data_offsets 0"},
      {"{" + Entry("t", "F4", "[3]", "[0, 1]") + "}", 1, "ends within a byte"},
      {"{" + Entry("t", "U8", "[4294967296, 4294967296]", "[0, 0]") + "}", 0, "too many elements"},
      {"{" + Entry("t", "F32", "[" + big + "]", "[0, " + big + "]") + "}", 4, "too many elements"},
      {"{" + Entry("t", "F32", "[1]", "[0, 4]") + ", " + Entry("t", "F32", "[1]", "[4, 8]") + "}",
       8, "'t' comes twice"},
      {"{" + Entry("t", "F32", "[1]", "[0, 4]") + "}", 3, "end at byte 4 of the data, of which"},
      {"{" + Entry("t", "F32", "[1]", "[0, 4]") + "}", 5, "end at byte 4 of the data, of which"},
      {"{}", 1, "end at byte 0 of the data, of which the file has 1"},
      {"{" + Entry("t", "F32", "[1]", "[4, 8]") + "}", 8,
       "tensor 't': its data begin at byte 4, and those before it end at 0"},
      {"{" + Entry("a", "F32", "[2]", "[0, 8]") + ", " + Entry("b", "F32", "[1]", "[4, 8]") + "}",
       8, "tensor 'b': its data overlap those of tensor 'a'"},
      {"{" + Entry("a", "F32", "[1]", "[0, 4]") + ", " + Entry("b", "F32", "[1]", "[0, 4]") + "}",
       4, "its data overlap those of tensor"},
      {"{" + Entry("a", "F32", "[1]", "[0, 4]") + ", " + Entry("b", "U8", "[0]", "[2, 2]") + "}", 4,
       "tensor 'b': its data overlap those of tensor 'a'"},
  };
  for (const Refused& each : all) {
    SCOPED_TRACE(each.header);
    const auto tensors = Parse(SafetensorsText(each.header, std::string(each.data_bytes, 'x')));
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tensors.status().message()), HasSubstr(each.message));
  }
}

TEST(Safetensors, FilesThatAreCutShortAreRefused) {
  const std::string file = SafetensorsText(std::vector<FileTensor>{
      NamedTensor("a", "F32", {2, 2}, 4), NamedTensor("b", "BF16", {3}, 2)});
  ASSERT_TRUE(Parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    const auto tensors = Parse(file.substr(0, size));
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST(Safetensors, ALengthThatCannotBeIsRefused) {
  for (const uint64_t length : {uint64_t{100'000'001}, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string file(64, ' ');
    std::memcpy(file.data(), &length, sizeof(length));
    const auto tensors = ParseSafetensorsHeader(file, uint64_t{1} << 40);
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tensors.status().message()), HasSubstr("allows 100000000"));
  }
}

// Neither recursion nor a tree: depth costs nothing.
TEST(Safetensors, DeepNestingIsRefused) {
  for (const std::string prefix :
       {"", R"({"t": )", R"({"t": {"shape": )", R"({"__metadata__": {"a": )"}) {
    for (const std::string open : {"[", R"({"a":)"}) {
      std::string header = prefix;
      for (int depth = 0; depth < 1'000'000; ++depth) header += open;
      const auto tensors = Parse(SafetensorsText(header, ""));
      EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(Safetensors, NamesInMessagesAreShortAndEscaped) {
  EXPECT_EQ(QuotedName("a\nb"), "'a\\nb'");
  EXPECT_THAT(QuotedName(std::string(1'000'000, 'x')), SizeIs(205));
}

TEST(SafetensorsFile, HasTheDataOfItsTensors) {
  const TestFolder folder;
  const std::vector<FileTensor> written = {NamedTensor("a", "F32", {2, 2}, 4),
                                           NamedTensor("b", "BF16", {3}, 2),
                                           NamedTensor("c", "F8_E4M3", {1, 5}, 1)};
  folder.Write("x.safetensors", SafetensorsText(written));
  const auto file = SafetensorsFile::Open(folder.PathOf("x.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->path(), folder.PathOf("x.safetensors"));
  ASSERT_THAT((*file)->tensors(), SizeIs(written.size()));
  for (size_t i = 0; i < written.size(); ++i) {
    const SafetensorsTensor& tensor = (*file)->tensors()[i];
    EXPECT_EQ(tensor.name, written[i].name);
    ASSERT_EQ(tensor.end - tensor.begin, written[i].bytes.size());
    EXPECT_EQ(std::memcmp((*file)->Data(tensor), written[i].bytes.data(), written[i].bytes.size()),
              0);
  }
}

TEST(SafetensorsFile, ErrorsNameTheFile) {
  const TestFolder folder;
  const std::string path = folder.PathOf("x.safetensors");
  EXPECT_EQ(SafetensorsFile::Open(path).status(),
            absl::NotFoundError(absl::StrCat("cannot read ", path, ": No such file or directory")));
  EXPECT_EQ(
      SafetensorsFile::Open(folder.path()).status(),
      absl::InvalidArgumentError(absl::StrCat("cannot read ", folder.path(), ": it is no file")));
  for (const std::string text : {"", "1234567", "123456789"}) {
    folder.Write("x.safetensors", text);
    const absl::Status status = SafetensorsFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StartsWith(status.message(), absl::StrCat(path, ": damaged header: ")))
        << status;
  }
}

}  // namespace
}  // namespace octet
