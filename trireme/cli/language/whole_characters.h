// A text that comes in pieces, cut between characters of UTF-8 only.
#pragma once

#include <string>
#include <string_view>

namespace trireme::cli {

class WholeCharacters {
 public:
  // Returns all but the beginning of a character at the end. Bytes that are not UTF-8 are passed.
  std::string add(std::string_view piece);
  // Returns the rest.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace trireme::cli
