#include "trireme/cli/verify/child_run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <span>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/cli/commands.h"
#include "trireme/launch/process/child.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::cli {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr uint64_t kLineBytes = uint64_t{1} << 16;  // more than a line of which 500 bytes are shown

}  // namespace

std::string last_line(const std::filesystem::path& log) {
  const InputFile file(log);
  std::string text(std::min(file.num_bytes(), kLineBytes), '\0');
  file.read(file.num_bytes() - text.size(), std::as_writable_bytes(std::span(text)));
  while (text.ends_with('\n')) text.pop_back();
  const size_t begin = text.rfind('\n');
  return shown(begin == std::string::npos ? text : text.substr(begin + 1), 500);
}

int run_training(const std::vector<std::string>& words, const std::filesystem::path& log,
                 GroupGuard& guard) {
  const Descriptor output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  TRIREME_CHECK(output.is_open(), log.string(), " cannot be written; give another --output");
  std::vector<std::string> command = {own_program(), "train"};
  command.insert(command.end(), words.begin(), words.end());
  const launch::SignalWatch signals({SIGINT, SIGTERM, SIGHUP});
  launch::Child child({.command = command,
                       .environment = launch::inherited_environment(),
                       .output = output.get(),
                       .errors = output.get(),
                       .guard = &guard},
                      command[1]);
  bool is_stopped = false;
  while (true) {
    while (const std::optional<int> signal = signals.next()) {
      is_stopped = true;
      child.signal(*signal == SIGHUP ? SIGTERM : *signal);
    }
    if (const std::optional<launch::ExitStatus> status = child.reap_group()) {
      if (is_stopped) throw Error(concat("stopped by a signal; ", log.string(), " has the run"));
      return status->signal != 0 ? 128 + status->signal : status->code;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace trireme::cli
