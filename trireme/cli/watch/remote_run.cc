#include "trireme/cli/watch/remote_run.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/launch/jobs/quoted.h"

namespace trireme::cli {

bool is_remote_run(const std::string& word) {
  const size_t colon = word.find(':');
  if (colon == word.npos || colon == 0 || word.find('/') < colon) return false;
  std::error_code problem;
  return !std::filesystem::exists(word, problem);
}

std::string tunnel_command(const std::string& word, int port) {
  const size_t colon = word.find(':');
  const std::string host = word.substr(0, colon), folder = word.substr(colon + 1);
  const bool is_name = host.front() != '-' && std::ranges::all_of(host, [](char c) {
                         return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                (c >= 'A' && c <= 'Z') ||
                                std::string_view("-_.@").find(c) != std::string_view::npos;
                       });
  TRIREME_CHECK(is_name && !folder.empty() && is_printable(word), "RUN is ", shown(word),
                "; expected HOST:FOLDER, such as user@host:runs/demo");
  // A free port is chosen there, which nobody here would know.
  const int used = port == 0 ? 7117 : port;
  const std::string remote =
      concat("trireme watch --no-browser --port ", used, " -- ", launch::shell_word(folder));
  return concat("ssh -t -L ", used, ":127.0.0.1:", used, " ", host, " ",
                launch::shell_word(remote));
}

}  // namespace trireme::cli
