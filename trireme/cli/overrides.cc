#include "trireme/cli/overrides.h"

#include "trireme/base/error.h"

namespace trireme::cli::inline internal {

std::vector<train::Override> parse_overrides(const std::vector<std::string>& words) {
  std::vector<train::Override> overrides;
  for (size_t i = 0; i < words.size(); ++i) {
    TRIREME_CHECK(words[i].starts_with("--"), "unexpected argument \"", words[i],
                  "\"; overrides are written --section.key=value");
    const size_t equals = words[i].find('=');
    const std::string key = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    if (equals != std::string::npos) {
      overrides.emplace_back(key, words[i].substr(equals + 1));
    } else {
      TRIREME_CHECK(i + 1 < words.size(), "--", key, " has no value; write --", key, "=value");
      overrides.emplace_back(key, words[++i]);
    }
  }
  return overrides;
}

}  // namespace trireme::cli::inline internal
