// trireme logs: shows what the ranks and agents of a run have written, in the order of time.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/launch/journal/log_reader.h"

namespace trireme::cli {
namespace {

constexpr std::chrono::milliseconds kPollInterval(200);

struct LogArguments {
  std::string run;
  std::string ranks;
  std::string since;
  std::string pattern;
  std::string level = "info";
  bool follow = false;
  bool json = false;
};

launch::LogFilter filter_of(const LogArguments& arguments) {
  launch::LogFilter filter{.is_following = arguments.follow};
  if (!arguments.ranks.empty()) filter.ranks = launch::parse_ranks(arguments.ranks, "--rank");
  if (!arguments.since.empty()) {
    filter.since =
        launch::parse_since(arguments.since, "--since", std::chrono::system_clock::now());
  }
  filter.least_level = choose(launch::kLogLevels, "--level", arguments.level);
  if (!arguments.pattern.empty()) {
    filter.matches = launch::parse_pattern(arguments.pattern, "--grep");
  }
  return filter;
}

std::string to_json(const launch::LogEntry& entry) {
  nlohmann::ordered_json object = {{"time", launch::to_text(entry.line.time)}};
  if (entry.rank >= 0) object["rank"] = entry.rank;
  if (!entry.host.empty()) object["host"] = entry.host;
  object["epoch"] = entry.line.epoch;
  if (entry.is_stale) object["stale"] = true;
  if (entry.line.step >= 0) object["step"] = entry.line.step;
  object["stream"] = name_of(launch::kLogStreams, entry.line.stream);
  object["level"] = name_of(launch::kLogLevels, entry.level);
  object["text"] = entry.line.text;
  return object.dump(-1, ' ', /*ensure_ascii=*/true,
                     nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_text(const launch::LogEntry& entry) {
  const std::string who =
      entry.rank >= 0 ? concat("rank ", entry.rank) : "agent " + printable(entry.host);
  const std::string step = entry.line.step >= 0 ? concat(" step ", entry.line.step) : "";
  const char* const stale = entry.is_stale ? " (stale)" : "";
  TerminalText text;  // keeps tabs
  return concat(launch::to_text(entry.line.time), " ", who, " epoch ", entry.line.epoch, stale,
                step, " ", name_of(launch::kLogStreams, entry.line.stream), "| ",
                text.add(entry.line.text), text.finish());
}

// Prints what is there now. Returns the number of lines.
int64_t print_lines(launch::LogReader& reader, bool json) {
  int64_t count = 0;
  while (const auto entry = reader.next()) {
    std::printf("%s\n", (json ? to_json(*entry) : to_text(*entry)).c_str());
    ++count;
  }
  if (std::fflush(stdout) != 0) throw Error("cannot write the logs to the standard output");
  return count;
}

int logs(const LogArguments& arguments) {
  launch::LogReader reader(arguments.run, filter_of(arguments));
  const int64_t num_lines = print_lines(reader, arguments.json);
  const bool found_no_file = reader.num_files() == 0 && arguments.since.empty();
  TRIREME_CHECK(arguments.follow || num_lines > 0 || arguments.ranks.empty() || !found_no_file,
                arguments.run, " has no log of a rank in --rank ", arguments.ranks,
                "; expected ranks of which logs/ has a file");
  while (arguments.follow) {
    // Once the end is visible, so is everything written before it.
    const bool has_ended = reader.has_ended();
    print_lines(reader, arguments.json);
    if (has_ended) break;
    std::this_thread::sleep_for(kPollInterval);
  }
  return kDone;
}

}  // namespace

void add_logs(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<LogArguments>();
  CLI::App* command = app.add_subcommand(
      "logs",
      "Show the output of a run's ranks and agents, merged in order of time, during the run or\n"
      "afterwards.\n"
      "  trireme logs runs/demo --level error\n"
      "  trireme logs runs/demo --rank 0,4-7 --since 10m --follow\n");
  command->add_option("run", arguments->run, "a run's folder (its output.folder)")->required();
  command->add_option("--rank", arguments->ranks, "show only these ranks, such as 3 or 0,5-7");
  command->add_flag("--follow", arguments->follow, "keep printing new lines until the run ends");
  command->add_option("--since", arguments->since,
                      "show only lines since this time: an age such as 90s, 10m, 2h or 3d, or a "
                      "UTC time such as 2026-11-25T07:12");
  command->add_option("--grep", arguments->pattern,
                      "show only lines that match this extended regular expression");
  command
      ->add_option("--level", arguments->level,
                   "least severe lines to show: info, warning or error; the words of a line decide "
                   "its level")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "print one JSON object per line");
  command->footer(
      "`trireme run` keeps the output of rank R in RUN/logs/rank-R.log and that of its agent on a\n"
      "host in RUN/logs/agent-HOST.log, each in at most two files of 64 MiB.\n"
      "All times are UTC, by the clock of the host that wrote the line. \"(stale)\" marks lines of "
      "a\n"
      "rank that came after a later epoch had begun, as from a host that was paused.");
  command->callback([arguments, &exit_code] { exit_code = logs(*arguments); });
}

}  // namespace trireme::cli
