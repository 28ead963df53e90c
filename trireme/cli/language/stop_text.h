// A text that comes in pieces and ends before the string of some that is complete first.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::cli {

class StopText {
 public:
  // stops: none is empty
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns what surely lies before any of the strings: all but what one may begin with.
  std::string add(std::string_view piece);
  bool has_ended() const { return has_ended_; }
  // Returns the rest of a text that none of them has ended.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool has_ended_ = false;
};

}  // namespace trireme::cli
