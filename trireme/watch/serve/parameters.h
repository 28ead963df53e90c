// The query of a request, checked: what a stranger asks for is within its range, or an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::watch {

class Parameters {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  Parameters(Pairs pairs = {}) : pairs_(std::move(pairs)) {}  // NOLINT: from a list of pairs

  // Of a repeated name the last value.
  std::optional<std::string> text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  // Throws: ConfigError when it is no whole number from `least` to `most`
  int64_t whole(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const;
  // Throws: ConfigError when it is no finite number
  std::optional<double> number(std::string_view name) const;

 private:
  Pairs pairs_;
};

// A text as a value in a query: what is not a letter, a digit or one of "-._/" becomes "%41".
std::string url_text(std::string_view text);

}  // namespace trireme::watch
