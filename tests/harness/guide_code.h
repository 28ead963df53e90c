// Whether the C++ code of a page of the guide is that of a source that is compiled and tested.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/patterns.h"

namespace trireme::harness {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Lines without indentation, of the whole text or of its blocks of code.
inline std::vector<std::string> lines_of(const std::string& text, bool code_only) {
  std::vector<std::string> lines;
  bool is_code = !code_only;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line(trimmed(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
    if (code_only && line.starts_with("```")) {
      is_code = line == "```cpp";
    } else if (is_code && !line.empty()) {
      lines.push_back(line);
    }
  }
  return lines;
}

// Expects each line of the page's blocks of code, at least `count`, in the source.
inline void expect_code_of(const std::string& page, const std::string& source, size_t count) {
  const std::vector<std::string> own = lines_of(text_of(source), false);
  const std::set<std::string> known(own.begin(), own.end());
  const std::vector<std::string> shown = lines_of(text_of(page), true);
  EXPECT_GE(shown.size(), count);
  for (const std::string& line : shown) EXPECT_TRUE(known.contains(line)) << line;
}

}  // namespace trireme::harness
