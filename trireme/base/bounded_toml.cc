#include "trireme/base/bounded_toml.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Length of the string at the start of `text`, including quotes; all of `text` if it does not end.
size_t string_length(std::string_view text) {
  const char quote = text[0];
  const bool is_long = text.size() >= 3 && text[1] == quote && text[2] == quote;
  const size_t num_quotes = is_long ? 3 : 1;
  size_t at = num_quotes;
  while (at < text.size()) {
    if (quote == '"' && text[at] == '\\') {
      at += 2;
    } else if (!is_long && text[at] == '\n') {
      return at;  // the parser refuses it
    } else if (text[at] == quote && text.substr(at).starts_with(std::string(num_quotes, quote))) {
      at += num_quotes;
      // One or two quotes before the closing three belong to the string.
      for (int i = 0; is_long && i < 2 && at < text.size() && text[at] == quote; ++i) ++at;
      return at;
    } else {
      ++at;
    }
  }
  return text.size();
}

}  // namespace

void check_toml(std::string_view text, const std::string& source) {
  TRIREME_CHECK(text.size() <= kMaxTomlBytes, source, ": the config has ", text.size(),
                " bytes; expected at most ", kMaxTomlBytes);
  size_t num_dots = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '"' || text[at] == '\'') {
      at += string_length(text.substr(at));
    } else {
      num_dots += text[at] == '.' ? 1 : 0;
      TRIREME_CHECK(num_dots <= kMaxTomlDots, source, ":",
                    1 + std::ranges::count(text.substr(0, at), '\n'), ": the config has more than ",
                    kMaxTomlDots,
                    " dots outside of strings; expected [section] and below it key = value");
      ++at;
    }
  }
}

}  // namespace trireme
