#include "trireme/dataset/file/text_lines.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::dataset {
namespace {

using ::testing::HasSubstr;

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(FileFormat, KnowsCompressedAndBinaryFilesByTheirFirstBytes) {
  EXPECT_THAT(not_text("a", {"\x1f\x8b\x08\x00", 4}), HasSubstr("gzip"));
  EXPECT_THAT(not_text("a.txt", "\x28\xb5\x2f\xfd..."), HasSubstr("zstd"));
  EXPECT_THAT(not_text("a", "PAR1..."), HasSubstr("--format parquet"));
  EXPECT_EQ(compression_of("BZh9"), "bzip2");
  EXPECT_EQ(compression_of("BZ"), "");
  EXPECT_EQ(not_text("a", ""), "");
}

TEST(FileFormat, KnowsJsonLines) {
  const std::string line = R"({"text": "a \"quoted\" one", "n": [1, 2]})";
  EXPECT_THAT(not_text("a.txt", line + "\n" + line), HasSubstr("JSON lines"));
  EXPECT_THAT(not_text("a", "\xef\xbb\xbf" + line + "\r\n\r\n" + line + "\r\n"),
              HasSubstr("JSON lines"));
  EXPECT_THAT(not_text("a.jsonl", line), HasSubstr("JSON lines"));
  const std::string long_line = R"({"text": ")" + std::string(kFormatHeadBytes, 'x');
  EXPECT_THAT(not_text("a.jsonl", long_line.substr(0, kFormatHeadBytes)), HasSubstr("JSON lines"));
  // The last of the lines that are there is not whole.
  EXPECT_THAT(not_text("a", (line + "\n" + line + "\n" + long_line).substr(0, kFormatHeadBytes)),
              HasSubstr("JSON lines"));
}

TEST(FileFormat, SourceCodeThatHasBracesIsText) {
  EXPECT_EQ(not_text("package.json", "{\"name\": \"x\"}\n"), "");
  EXPECT_EQ(not_text("a.json", "{\n  \"name\": \"x\",\n  \"b\": 1\n}\n"), "");
  EXPECT_EQ(not_text("a.cc", "{ int x = 1; }\n{ int y = 2; }\n"), "");
  EXPECT_EQ(not_text("a.json", "{}\nand more\n"), "");
}

TEST(FileFormat, KnowsTables) {
  EXPECT_THAT(not_text("a.csv", "x,y\n1,2\n"), HasSubstr("--format"));
  EXPECT_THAT(not_text("a.tsv", "x\ty\n"), HasSubstr("table"));
  EXPECT_THAT(not_text("day_0", repeated("1\t2\t\t\tab\n", 9)), HasSubstr("table"));
  EXPECT_THAT(not_text("a", repeated("1,\"a, b\",c\n", 5) + repeated("1,b,c\n", 5)),
              HasSubstr("table"));
  EXPECT_EQ(not_text("a", repeated("1,b,c\n", 7)), "") << "too few lines to say";
  EXPECT_EQ(not_text("a.csv", "one word a line\nanother\n"), "");
}

TEST(FileFormat, ProseAndListsInSourceCodeAreText) {
  EXPECT_EQ(not_text("a", repeated("One, two and, well, three.\nNo.\n", 9)), "");
  EXPECT_EQ(not_text("a.inc", repeated("  0x01, 0x02, 0x03,\n", 20)), "");
  EXPECT_EQ(not_text("a.py", "import os, sys, re\n\n\ndef f(a, b):\n    return a, b\n"), "");
}

}  // namespace
}  // namespace trireme::dataset
