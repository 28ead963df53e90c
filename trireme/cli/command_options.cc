#include "trireme/cli/command_options.h"

#include <fstream>

#include "trireme/base/error.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {

void write_output(std::string_view option, const std::string& path, std::string_view text) {
  std::ofstream file(path);
  file << text;
  file.close();
  TRIREME_CHECK(!file.fail(), option, ": cannot write ", printable(path));
}

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

}  // namespace trireme::cli
