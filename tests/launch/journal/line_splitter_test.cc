#include "trireme/launch/journal/log_splitter.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

const WallTime kStart = WallTime(1h);

// All lines of a text that comes in pieces of `piece_bytes` at once.
Lines split(const std::string& text, size_t piece_bytes, size_t max_line_bytes = 100) {
  LineSplitter splitter(max_line_bytes);
  Lines lines;
  for (size_t at = 0; at < text.size(); at += piece_bytes) {
    for (std::string& line : splitter.add(text.substr(at, piece_bytes), kStart)) {
      lines.push_back(std::move(line));
    }
  }
  for (std::string& line : splitter.finish()) lines.push_back(std::move(line));
  return lines;
}

TEST(LineSplitter, CutsAtLineEndsHoweverThePiecesCome) {
  for (size_t piece = 1; piece < 20; ++piece) {
    EXPECT_EQ(split("a\n\nbc\r\nd\r\n\r\ne", piece), (Lines{"a", "", "bc", "d", "", "e"})) << piece;
    EXPECT_EQ(split("", piece), Lines{});
    EXPECT_EQ(split("\n", piece), Lines{""});
  }
}

TEST(LineSplitter, KeepsTheEndOfAProgressBarAndFewStatesOfIt) {
  for (size_t piece = 1; piece < 20; ++piece) {
    EXPECT_EQ(split("\r10%\r20%\r30%\ndone\n", piece), (Lines{"10%", "30%", "done"})) << piece;
  }
  LineSplitter splitter;
  Lines lines;
  for (int i = 0; i < 100; ++i) {
    for (std::string& line : splitter.add("\r" + std::to_string(i) + "%", kStart + i * 100ms)) {
      lines.push_back(std::move(line));
    }
  }
  EXPECT_EQ(lines.size(), 10u);
  EXPECT_EQ(splitter.finish(), Lines{"99%"});
}

TEST(LineSplitter, CutsLongLines) {
  for (const size_t piece : {1, 3, 7, 1000}) {
    EXPECT_EQ(split(std::string(25, 'x') + "\ny\n", piece, 10),
              (Lines{std::string(10, 'x'), std::string(10, 'x'), "xxxxx", "y"}))
        << piece;
    // A line of exactly the most bytes is one line.
    EXPECT_EQ(split(std::string(10, 'x') + "\ny", piece, 10), (Lines{std::string(10, 'x'), "y"}));
    EXPECT_EQ(split(std::string(20, 'x') + "\n\n", piece, 10),
              (Lines{std::string(10, 'x'), std::string(10, 'x'), ""}));
  }
}

TEST(LineSplitter, CutsBetweenCharacters) {
  EXPECT_EQ(split("123456789\u20ac\n", 100, 10), (Lines{"123456789", "\u20ac"}));
  EXPECT_EQ(split(std::string(12, '\x80'), 100, 10).front().size(), 10u);  // no UTF-8
}

TEST(LineSplitter, LosesNoByteOfAnyText) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 37);
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  for (const size_t piece : {1, 5, 64, 5000}) {
    std::string joined;
    for (const std::string& line : split(text, piece, 50)) joined += line;
    EXPECT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace trireme::launch
