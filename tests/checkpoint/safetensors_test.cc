#include "trireme/checkpoint/safetensors.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr at::ScalarType kAllDtypes[] = {at::kDouble, at::kFloat, at::kHalf,  at::kBFloat16,
                                         at::kLong,   at::kInt,   at::kShort, at::kChar,
                                         at::kByte,   at::kBool};

// Of every dtype an odd one, a scalar and an empty one.
std::map<std::string, at::Tensor> tensors_of_all_dtypes() {
  std::map<std::string, at::Tensor> tensors;
  for (at::ScalarType dtype : kAllDtypes) {
    const std::string name = dtype_name(dtype);
    tensors[name] = random_tensor(name, {3, 5}, dtype);
    tensors[name + ".scalar"] = random_tensor(name + ".scalar", {}, dtype);
    tensors[name + ".empty"] = random_tensor(name + ".empty", {0, 4}, dtype);
  }
  return tensors;
}

// A file of this header and so many bytes of data.
std::string file_of(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json +
         std::string(data_bytes, 'x');
}

std::string error_for(const std::string& content) {
  const TemporaryFolder folder;
  overwrite(folder / "file.safetensors", content);
  return checkpoint_error([&] { SafetensorsReader reader(folder / "file.safetensors"); });
}

TEST(Safetensors, EveryDtypeReadsBackWithTheSameBits) {
  const TemporaryFolder folder;
  const auto tensors = tensors_of_all_dtypes();
  write_safetensors(folder / "file", tensors, {{"format", "pt"}, {"note", "ä"}});
  const SafetensorsReader reader(folder / "file");
  EXPECT_EQ(reader.tensors().size(), tensors.size());
  EXPECT_EQ(reader.metadata().at("note"), "ä");
  EXPECT_EQ(reader.header().size() % 8, 0u);
  for (const auto& [name, tensor] : tensors) {
    harness::assert_same_bits(reader.view(name), tensor, name);
    harness::assert_same_bits(reader.read(name), tensor, name);
  }
}

TEST(Safetensors, AViewOutlivesItsReaderAndACopyOwnsItsBytes) {
  const TemporaryFolder folder;
  const at::Tensor tensor = random_tensor("w", {64}, at::kFloat);
  write_safetensors(folder / "file", {{"w", tensor}});
  at::Tensor view, copy;
  {
    const SafetensorsReader reader(folder / "file");
    view = reader.view("w");
    copy = reader.read("w");
    EXPECT_EQ(view.const_data_ptr(), static_cast<const void*>(reader.bytes("w").data()));
  }
  harness::assert_same_bits(view, tensor, "view");
  copy.zero_();
  harness::assert_same_bits(view, tensor, "view after the copy changed");
}

TEST(Safetensors, ATensorOffItsAlignmentIsCopied) {
  const TemporaryFolder folder;
  overwrite(folder / "file", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                     R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                                     9));
  const SafetensorsReader reader(folder / "file");
  const at::Tensor view = reader.view("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.const_data_ptr()) % 4, 0u);
  EXPECT_EQ(std::memcmp(view.const_data_ptr(), "xxxxxxxx", 8), 0);
}

TEST(Safetensors, AStridedTensorIsWrittenInLogicalOrder) {
  const TemporaryFolder folder;
  const at::Tensor transposed = random_tensor("w", {4, 3}, at::kFloat).t();
  write_safetensors(folder / "file", {{"w", transposed}});
  harness::assert_same_bits(SafetensorsReader(folder / "file").read("w"), transposed, "w");
}

TEST(Safetensors, ATensorInPartsIsWrittenAsTheWholeOne) {
  const harness::TemporaryFolder folder;
  const at::Tensor a = at::arange(10).view({5, 2}), b = at::arange(3);
  write_safetensors(folder / "whole", {{"a", a}, {"b", b}, {"c", at::empty({0}, at::kLong)}});
  SafetensorsWriter writer(folder / "parts", {{.name = "a", .dtype = at::kLong, .shape = {5, 2}},
                                              {.name = "b", .dtype = at::kLong, .shape = {3}},
                                              {.name = "c", .dtype = at::kLong, .shape = {0}}});
  writer.write_part(a.narrow(0, 0, 3));
  EXPECT_THROW(writer.write(b), InternalError);
  writer.write_part(a.narrow(0, 3, 2));
  writer.write(b);
  EXPECT_THROW(writer.write_part(b), InternalError);
  SafetensorsWriter again(folder / "parts", {{.name = "a", .dtype = at::kLong, .shape = {5, 2}},
                                             {.name = "b", .dtype = at::kLong, .shape = {3}},
                                             {.name = "c", .dtype = at::kLong, .shape = {0}}});
  for (const at::Tensor& part :
       {a.narrow(0, 0, 1), a.narrow(0, 1, 4), b, at::Tensor(at::empty({0}, at::kLong))})
    again.write_part(part);
  again.finish(/*fsync=*/false);
  EXPECT_EQ(read_file(folder / "parts"), read_file(folder / "whole"));
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
  const TemporaryFolder folder;
  write_safetensors(folder / "file", {});
  EXPECT_TRUE(SafetensorsReader(folder / "file").tensors().empty());
}

TEST(Safetensors, TruncationAtAnyByteIsNoticed) {
  const TemporaryFolder folder;
  write_safetensors(folder / "file", {{"w", random_tensor("w", {3}, at::kFloat)}});
  const std::string whole = read_file(folder / "file");
  for (size_t length = 0; length < whole.size(); ++length) {
    overwrite(folder / "cut", whole.substr(0, length));
    const std::string error = checkpoint_error([&] { SafetensorsReader reader(folder / "cut"); });
    ASSERT_THAT(error, AllOf(HasSubstr("/cut"), HasSubstr("truncated"))) << length;
  }
}

TEST(Safetensors, AnInvalidHeaderIsRefusedWithItsReason) {
  const std::string w = R"("dtype":"F32","shape":[2],"data_offsets":)";
  EXPECT_THAT(error_for(std::string(8, '\xff')), HasSubstr("header of 18446744073709551615 bytes"));
  EXPECT_THAT(error_for(file_of("[1]", 0)), HasSubstr("an array of 1; expected an object"));
  EXPECT_THAT(error_for(file_of("{", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_for(file_of("{\"w\":{" + w + "[0,9]}}", 8)), HasSubstr("truncated"));
  EXPECT_THAT(error_for(file_of("{\"w\":{" + w + "[8,0]}}", 8)), HasSubstr("bytes 8 to 0"));
  EXPECT_THAT(error_for(file_of("{\"w\":{" + w + "[0,7]}}", 7)), HasSubstr("need 8"));
  EXPECT_THAT(error_for(file_of("{\"w\":{" + w + "[-8,0]}}", 8)),
              HasSubstr("w.data_offsets[0] is -8"));
  EXPECT_THAT(error_for(file_of("{\"w\":{" + w + "[0]}}", 8)), HasSubstr("expected two offsets"));
  EXPECT_THAT(error_for(file_of("{\"w\":{" + w + "[0,8]}}", 9)), HasSubstr("surplus bytes"));
  EXPECT_THAT(error_for(file_of("{\"w\":{" + w + "[4,12]}}", 12)), HasSubstr("gap"));
  EXPECT_THAT(error_for(file_of("{\"v\":{" + w + "[0,8]},\"w\":{" + w + "[4,12]}}", 12)),
              HasSubstr("overlaps"));
  EXPECT_THAT(error_for(file_of(R"({"w":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1)),
              HasSubstr("w.dtype is \"F4\"; expected one of F64 F32"));
  EXPECT_THAT(error_for(file_of(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})", 0)),
              HasSubstr("w.shape[0] is -1"));
  EXPECT_THAT(
      error_for(file_of(
          R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0)),
      HasSubstr("impossible shape"));
  EXPECT_THAT(error_for(file_of(R"({"w":{"dtype":"F32"}})", 0)),
              HasSubstr("expected an object with \"shape\""));
  EXPECT_THAT(error_for(file_of(R"({"__metadata__":{"a":1}})", 0)),
              HasSubstr("__metadata__.a is 1; expected a string"));
}

// Each would end the process, or be taken for something else, if it were believed.
TEST(Safetensors, AHostileHeaderIsRefused) {
  const auto error = [](const std::string& header, size_t data_bytes = 0) {
    const std::string text = error_for(file_of(header, data_bytes));
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  };
  EXPECT_THAT(error(std::string(100'000, '[')), HasSubstr("deep"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error(objects), HasSubstr("deep"));
  const std::string scalar = R"("w":{"dtype":"U8","shape":[],"data_offsets":[0,1]})";
  EXPECT_THAT(error("{" + scalar + "," + scalar + "}", 1), HasSubstr("the key \"w\" twice"));
  EXPECT_THAT(error(R"({"w":{"dtype":"U8","dtype":"I8","shape":[],"data_offsets":[0,1]}})", 1),
              HasSubstr("the key \"dtype\" twice"));
  EXPECT_THAT(error("{" + scalar + R"(,"v":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1),
              HasSubstr("overlaps"));
  for (const char* offsets : {"[0.0,1]", "[0,1e0]", "[true,1]", "[null,1]", "[\"0\",1]",
                              "[0,9223372036854775808]", "[0,18446744073709551616]"}) {
    EXPECT_THAT(error(concat(R"({"w":{"dtype":"U8","shape":[],"data_offsets":)", offsets, "}}"), 1),
                HasSubstr("a whole number from 0 to 9223372036854775807"))
        << offsets;
  }
  const std::string none = R"(,"data_offsets":[0,0]}})";
  EXPECT_THAT(error(R"({"w":{"dtype":"U8","shape":[0,4294967296,4294967296])" + none),
              HasSubstr("impossible shape"));
  EXPECT_THAT(error(R"({"w":{"dtype":"U8","shape":[9223372036854775808])" + none),
              HasSubstr("a whole number"));
  std::string ones = "0";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_THAT(error(R"({"w":{"dtype":"U8","shape":[)" + ones + "]" + none),
              HasSubstr("at most 64 dimensions"));
  EXPECT_THAT(error(std::string("{}\0", 3)), HasSubstr("zero at byte 2"));
  for (const std::string& name : {std::string(1'000'000, 'w'), std::string(R"(\u001b[2J)")}) {
    const std::string text =
        error("{\"" + name + R"(":{"dtype":"U8","shape":[],"data_offsets":[0,2]}})");
    EXPECT_THAT(text, HasSubstr("is too long or has control characters"));
    EXPECT_LT(text.size(), 1000);
  }
  EXPECT_THAT(error("{\"\xff\":1}"), HasSubstr("not UTF-8"));
}

TEST(Safetensors, AMissingFileAndAMissingTensorAreNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(checkpoint_error([&] { SafetensorsReader reader(folder / "none"); }),
              HasSubstr("/none: No such file"));
  write_safetensors(folder / "file", {{"w", random_tensor("w", {3}, at::kFloat)}});
  EXPECT_THAT(checkpoint_error([&] { SafetensorsReader(folder / "file").view("v"); }),
              HasSubstr("/file: there is no tensor \"v\""));
}

TEST(Safetensors, TheWriterRefusesRepeatedNamesAndUnknownDtypes) {
  const TemporaryFolder folder;
  const TensorInfo info{.name = "w", .shape = {1}};
  EXPECT_THAT(checkpoint_error([&] {
                SafetensorsWriter writer(folder / "file", {info, info});
              }),
              HasSubstr("\"w\" is taken"));
  EXPECT_THROW(dtype_name(at::kComplexFloat), ConfigError);
  EXPECT_THAT(harness::message_of([&] { write_safetensors(folder / "no" / "file", {}); }),
              HasSubstr("No such file"));
}

// Runs read_safetensors.py, which fails when Python's safetensors package is not there.
void run_python(const std::string& arguments) {
  const std::string command =
      "'" TRIREME_TEST_PYTHON "' '" TRIREME_TEST_SCRIPT "' " + arguments + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(Safetensors, PythonReadsWhatWeWriteAndWeReadWhatPythonWrites) {
  const TemporaryFolder folder;
  const auto tensors = tensors_of_all_dtypes();
  write_safetensors(folder / "ours", tensors, {{"format", "pt"}});
  ASSERT_NO_FATAL_FAILURE(
      run_python((folder / "ours").string() + " " + (folder / "theirs").string()));
  const SafetensorsReader theirs(folder / "theirs");
  EXPECT_EQ(theirs.metadata().at("written by"), "python");
  ASSERT_EQ(theirs.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors)
    harness::assert_same_bits(theirs.read(name), tensor, name);
}

}  // namespace
}  // namespace trireme::checkpoint
