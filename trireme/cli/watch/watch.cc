// trireme watch: shows a run, live or dead, in a browser, or as one file.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/train_rank.h"
#include "trireme/cli/watch/alert_command.h"
#include "trireme/cli/watch/remote_run.h"
#include "trireme/watch/run/run_list.h"
#include "trireme/watch/serve/html_file.h"
#include "trireme/watch/serve/page_server.h"

namespace trireme::cli {
namespace {

struct WatchArguments {
  std::vector<std::string> runs;
  int port = 7117;
  std::string html;
  bool json = false;
  bool no_browser = false;
  std::string token_file;
  std::string on_alert;
  int alert_timeout = 60;
  int alert_interval = 300;
};

// A browser opens for somebody who sits at this machine. Failing to open one is no error: the
// address is printed.
void open_browser(const std::string& url) {
  const bool has_screen = std::getenv("DISPLAY") || std::getenv("WAYLAND_DISPLAY");
  if (::isatty(STDOUT_FILENO) != 1 || !has_screen) return;
  std::string program = "xdg-open", argument = url;
  char* const words[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  static_cast<void>(::posix_spawnp(&child, program.c_str(), nullptr, nullptr, words, ::environ));
}

void print_json_line(const nlohmann::json& object) {
  std::printf("%s\n", object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

int print_tunnel(const WatchArguments& arguments) {
  TRIREME_CHECK(arguments.runs.size() == 1 && arguments.html.empty() &&
                    arguments.on_alert.empty() && arguments.token_file.empty(),
                "RUN is ", printable(arguments.runs.front()),
                ", on another host; expected it alone, without --html, --on-alert and "
                "--token-file");
  const std::string command = tunnel_command(arguments.runs.front(), arguments.port);
  if (arguments.json) {
    print_json_line({{"command", command}});
  } else {
    std::printf("%s\n", printable(command).c_str());
  }
  return kDone;
}

int write_page(watch::RunList& runs, const WatchArguments& arguments) {
  const size_t num_bytes = watch::write_html(runs, arguments.html);
  if (arguments.json) {
    print_json_line({{"file", arguments.html}, {"bytes", num_bytes}});
  } else {
    std::printf("page    %s, %.1f MB\n", printable(arguments.html).c_str(),
                static_cast<double>(num_bytes) / 1e6);
  }
  return kDone;
}

// For programs that read /metrics, such as Prometheus, which reads the file at each scrape.
void write_token(const std::string& path, const std::string& token) {
  const mode_t before = ::umask(077);
  try {
    write_file_atomically(path, token);
  } catch (const Error&) {
    ::umask(before);
    throw;
  }
  ::umask(before);
}

// Looks at the alerts of the runs now and then, if there is a command for them.
class AlertLook {
 public:
  AlertLook(watch::RunList& runs, const WatchArguments& arguments) : runs_(runs) {
    if (arguments.on_alert.empty()) return;
    command_.emplace(AlertCommandOptions{.command = arguments.on_alert,
                                         .timeout = std::chrono::seconds(arguments.alert_timeout),
                                         .interval = std::chrono::seconds(arguments.alert_interval),
                                         .since = unix_seconds()});
  }
  void look() {
    const auto now = std::chrono::steady_clock::now();
    if (!command_ || !runs_.is_read() || now < next_look_) return;
    next_look_ = now + kAlertLook;
    command_->look(runs_);
    for (const std::string& failure : command_->take_failures())
      std::fprintf(stderr, "trireme: %s\n", printable(failure).c_str());
  }

 private:
  static constexpr std::chrono::seconds kAlertLook{1};

  watch::RunList& runs_;
  std::optional<AlertCommand> command_;
  std::chrono::steady_clock::time_point next_look_{};
};

int serve_page(watch::RunList& runs, const WatchArguments& arguments) {
  stop_on_signals();
  AlertLook alerts(runs, arguments);  // its time is before the address is told
  const std::string token = unique_name();
  watch::PageServer server(runs, static_cast<uint16_t>(arguments.port), token);
  if (!arguments.token_file.empty()) write_token(arguments.token_file, token);
  if (arguments.json) {
    print_json_line({{"url", server.url()}, {"port", server.port()}, {"runs", runs.size()}});
  } else {
    std::printf("watches %zu %s\n", runs.size(), runs.size() == 1 ? "run" : "runs");
    std::printf("at      %s\n", server.url().c_str());
    std::printf("until   a signal, such as Ctrl-C\n");
    std::fflush(stdout);
  }
  if (!arguments.no_browser) open_browser(server.url());
  server.run([&alerts] {
    alerts.look();
    return stop_requested.load();
  });
  return kDone;
}

int watch_runs(const WatchArguments& arguments) {
  for (const std::string& run : arguments.runs) {
    if (is_remote_run(run)) return print_tunnel(arguments);
  }
  watch::RunList runs({arguments.runs.begin(), arguments.runs.end()});
  return arguments.html.empty() ? serve_page(runs, arguments) : write_page(runs, arguments);
}

}  // namespace

void add_watch(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<WatchArguments>();
  CLI::App* command = app.add_subcommand(
      "watch",
      "Look at runs in a browser, during the run or after a crash: loss, throughput, every rank's\n"
      "time, who waits for whom, logs, and the last calls before a crash.\n"
      "  trireme watch runs/demo\n"
      "  trireme watch runs\n"
      "  trireme watch runs/demo --html demo.html\n"
      "  trireme watch host:runs/demo\n"
      "  curl -H \"Authorization: Bearer TOKEN\" http://127.0.0.1:7117/metrics\n");
  command
      ->add_option("runs", arguments->runs,
                   "folders of runs (output.folder), or folders that contain some; HOST:FOLDER "
                   "prints the ssh command for a run on another host")
      ->required();
  command->add_option("--port", arguments->port, "port of 127.0.0.1; 0 = a free one")
      ->check(within({0, 65535}))
      ->capture_default_str();
  command->add_option("--html", arguments->html,
                      "write the page to this file, below 5 MB and without requests, and end");
  CLI::Option* on_alert = command->add_option(
      "--on-alert", arguments->on_alert,
      "shell command to run for each new alert, which gets it as a line of JSON on stdin and "
      "TRIREME_ALERT, TRIREME_RUN, TRIREME_STEP and TRIREME_FOLDER in its environment; one "
      "command runs at a time");
  command
      ->add_option("--alert-timeout", arguments->alert_timeout,
                   "kill that command after this many seconds")
      ->check(within({1, 86400}))
      ->capture_default_str()
      ->needs(on_alert);
  command
      ->add_option("--alert-interval", arguments->alert_interval,
                   "seconds, at least, between two commands for alerts of one kind and run")
      ->check(within({0, 1e6}))
      ->capture_default_str()
      ->needs(on_alert);
  command->add_option("--token-file", arguments->token_file,
                      "write the token that requests need to this file, which only you may read");
  command->add_flag("--no-browser", arguments->no_browser,
                    "only print the address; without it a terminal with a screen opens a browser");
  add_json(*command, arguments->json);
  command->footer(
      "The page is served on this host's loopback interface, to those who know the token in the\n"
      "printed address. Runs are only read. /metrics answers Prometheus's text format and takes\n"
      "the token as \"Authorization: Bearer TOKEN\".");
  command->callback([arguments, &exit_code] { exit_code = watch_runs(*arguments); });
}

}  // namespace trireme::cli
