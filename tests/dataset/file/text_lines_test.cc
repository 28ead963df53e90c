#include "trireme/dataset/file/text_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

class TextLinesOf : public ::testing::Test {
 protected:
  std::vector<std::string> read(const std::string& text) {
    write_file_atomically(path_, text);
    TextLines lines(path_);
    std::vector<std::string> all;
    for (std::string_view line; lines.next(line);) {
      all.emplace_back(line);
      EXPECT_EQ(lines.number(), std::ssize(all));
    }
    EXPECT_EQ(lines.num_read(), std::ssize(text));
    return all;
  }
  std::string error_of(const std::string& text) {
    return harness::message_of<ConfigError>([&] { read(text); });
  }

  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "text";
};

using Strings = std::vector<std::string>;

TEST_F(TextLinesOf, EndInEitherWayOrWithTheFile) {
  EXPECT_EQ(read("a\nb\r\n\nc"), (Strings{"a", "b", "", "c"}));
  EXPECT_EQ(read("a\n"), (Strings{"a"}));
  EXPECT_EQ(read("\n\n"), (Strings{"", ""}));
  EXPECT_EQ(read("a\rb"), (Strings{"a\rb"}));
}

TEST_F(TextLinesOf, HaveNoByteOrderMark) {
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "a\n\xef\xbb\xbf"
                 "b\n"),
            (Strings{"a",
                     "\xef\xbb\xbf"
                     "b"}));
  EXPECT_EQ(read("\xef\xbb\xbf"), (Strings{}));
  write_file_atomically(path_,
                        "\xef\xbb\xbf"
                        "a\n");
  TextLines own(path_, TextOrigin::kOwn);
  std::string_view line;
  EXPECT_TRUE(own.next(line));
  EXPECT_EQ(line,
            "\xef\xbb\xbf"
            "a");
}

TEST_F(TextLinesOf, CrossPiecesUnchanged) {
  Strings expected;
  std::string text;
  for (size_t i = 0; i < 60; ++i) {
    expected.emplace_back(i * 2753, static_cast<char>('a' + i % 26));
    text += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  ASSERT_GT(text.size(), size_t{4} << 20);
  EXPECT_EQ(read(text), expected);
}

TEST_F(TextLinesOf, AreRefusedWhenEmptyCompressedOrTooLong) {
  const std::string path = path_.string();
  EXPECT_EQ(error_of(""), path + " is empty; expected lines of text");
  EXPECT_NE(error_of("BZh9").find("is compressed with bzip2; unpack it first"), std::string::npos);
  EXPECT_EQ(error_of("a\n" + std::string((1 << 20) + 1, 'x') + "\n"),
            path + ":2 has more than 1048576 bytes; expected shorter lines");
  EXPECT_EQ(error_of(std::string(5 << 20, 'x')),
            path + ":1 has more than 1048576 bytes; expected shorter lines");
  EXPECT_NE(harness::message_of<ConfigError>([&] { TextLines(folder_ / "none"); }), "");
}

TEST_F(TextLinesOf, AreCutAtEverySeparator) {
  std::vector<std::string_view> fields;
  split_fields("a,,b,", ',', fields);
  EXPECT_EQ(fields, (std::vector<std::string_view>{"a", "", "b", ""}));
  split_fields("", ',', fields);
  EXPECT_EQ(fields, (std::vector<std::string_view>{""}));
}

}  // namespace
}  // namespace trireme::dataset
