#include "trireme/dataset/file/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/dataset/file/npy.h"
#include "tests/harness/messages.h"

namespace trireme::dataset {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& bytes) {
  const std::string message =
      harness::message_of<ConfigError>([&] { parse_npy_header(bytes, "a.npy"); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(NpyHeader, IsReadInEachVersionAndOrderOfKeys) {
  const std::string text = npy_text("<f4", "(3, 13)");
  for (const char version : {'\1', '\2', '\3'}) {
    const std::string bytes = npy_of(text, version);
    const NpyHeader header = parse_npy_header(bytes + "numbers", "a.npy");
    EXPECT_EQ(header.type, "<f4");
    EXPECT_FALSE(header.is_fortran_order);
    EXPECT_EQ(header.shape, (std::vector<int64_t>{3, 13}));
    EXPECT_EQ(header.num_bytes, bytes.size());
  }
  const NpyHeader other =
      parse_npy_header(npy_of("{\"shape\":(5,),\"descr\":'>i8','fortran_order':True}  "), "a");
  EXPECT_EQ(other.type, ">i8");
  EXPECT_TRUE(other.is_fortran_order);
  EXPECT_EQ(other.shape, std::vector<int64_t>{5});
  EXPECT_TRUE(parse_npy_header(npy_of(npy_text("<f4", "()")), "a").shape.empty());
}

// numpy.save(path, numpy.zeros((2, 3), "<i4")) of NumPy 2.4.
TEST(NpyHeader, IsWrittenAsNumPyWritesIt) {
  const std::string written = make_npy_header(NpyType::kInt32, 2, 3);
  std::string text = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
  text.resize(128 - 10 - 1, ' ');
  EXPECT_EQ(written, npy_of(text + "\n"));
  EXPECT_EQ(parse_npy_header(written, "a").shape, (std::vector<int64_t>{2, 3}));
}

TEST(NpyHeader, WhatNumPyDoesNotWriteIsRefused) {
  EXPECT_EQ(error_of("PK\3\4 and so on"),
            "a.npy is not an array of NumPy; expected what numpy.save writes");
  EXPECT_EQ(error_of(""), "a.npy is not an array of NumPy; expected what numpy.save writes");
  EXPECT_THAT(error_of(npy_of("", 4)), HasSubstr("version 4.0 of the format; expected 1.0"));
  EXPECT_THAT(error_of(npy_of("")), HasSubstr("goes on with \"\"; expected \"{\""));
  const std::string text = npy_text("<f4", "(3, 13)");
  const std::string bytes = npy_of(text);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(error_of(bytes.substr(0, size)), "") << size;
  }
  EXPECT_THAT(error_of(npy_of(std::string(5000, ' '))), HasSubstr("5000 bytes; expected at most"));
  EXPECT_THAT(error_of(npy_of(text, 2).replace(8, 4, "\xff\xff\xff\xff")),
              HasSubstr("has 4294967295 bytes"));
  for (const char* wrong :
       {"{}", "{'descr': '<f4', 'fortran_order': False}", "[1]", "{'descr': '<f4'",
        "{'descr': '<f4, 'shape': (1,)}", "{'descr': <f4}", "{'fortran_order': 0}", "{'shape': 3}",
        "{'shape': (-3, 1)}", "{'shape': (3 1)}", "{'shape': (3, 1}",
        "{'shape': (99999999999999999999, 1)}", "{'shape': (1L,)}", "{'other': 'x'}",
        "{'shape': (1,), 'shape': (1,)}", "{'descr' '<f4'}", "{'descr': '<f4' 'shape': (1,)}",
        "{'descr': __import__('os').system('true')}"}) {
    EXPECT_THAT(error_of(npy_of(wrong)), HasSubstr("as numpy.save writes it")) << wrong;
  }
  EXPECT_THAT(error_of(npy_of(text + "x")), HasSubstr("goes on with \"x\""));
  std::string many = "(";
  for (int d = 0; d < 65; ++d) many += "1,";
  EXPECT_THAT(error_of(npy_of(npy_text("<f4", many + ")"))), HasSubstr("at most 64 sizes"));
  EXPECT_THAT(error_of(npy_of("{'descr': [('a', '<f4'), ('b', '<i4')], 'shape': (3,)}")),
              HasSubstr("the array has records, [('a', '<f4'), "));
}

}  // namespace
}  // namespace trireme::dataset
