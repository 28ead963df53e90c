// trireme doctor: reads the flight recorder of a run and reports what is wrong with it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/story_report.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::cli {
namespace {

struct DoctorArguments {
  std::string run;
  double late_after = 5;  // seconds
  size_t num_calls = 0;
  bool json = false;
};

const char* name_of(comm::CallState state) {
  switch (state) {
    case comm::CallState::kIssued: return "issued";
    case comm::CallState::kStarted: return "started";
    case comm::CallState::kDone: return "done";
    case comm::CallState::kFailed: return "failed";
  }
  return "";
}

// The recorder/ of a run's folder, or the folder itself if it is one.
std::filesystem::path recorder_folder(const std::filesystem::path& run) {
  const std::filesystem::path inner = run / "recorder";
  TRIREME_CHECK(std::filesystem::is_directory(inner) || run.filename() == "recorder", run.string(),
                " has no recorder folder; expected the output.folder of a run that "
                "`trireme train` has started");
  return std::filesystem::is_directory(inner) ? inner : run;
}

// The ranks that the run has recorded. Empty for a program without a recorder that `trireme run`
// has started.
std::vector<comm::ObservedRank> observe(const DoctorArguments& arguments) {
  const std::filesystem::path run = arguments.run;
  if (!std::filesystem::is_directory(run / "recorder") && launch::has_events(run)) return {};
  return comm::observe_ranks(recorder_folder(run));
}

// The run's event log and the story it tells.
struct RunStory {
  launch::EventLog log;
  launch::Story story;
};

bool has_agent_log(const std::filesystem::path& run) {
  std::error_code problem;
  for (std::filesystem::directory_iterator file(run / launch::kLogFolderName, problem), end;
       !problem && file != end; file.increment(problem)) {
    if (launch::host_of_log(file->path().filename().string())) return true;
  }
  return false;
}

std::optional<RunStory> story_of_run(const std::string& run,
                                     const std::vector<comm::ObservedRank>& ranks) {
  // Ranks without an agent have events, and no more to tell than their recorders.
  if (!launch::has_events(run) || (!ranks.empty() && !has_agent_log(run))) return std::nullopt;
  const bool goes_on = std::ranges::any_of(ranks, [](const comm::ObservedRank& rank) {
    return !rank.ring.closed && rank.process == comm::ProcessState::kRunning;
  });
  const auto until = goes_on ? std::optional(std::chrono::system_clock::now()) : std::nullopt;
  launch::EventLog log = launch::read_events(run);
  launch::Story story = launch::story_of(log, until);
  return RunStory{std::move(log), std::move(story)};
}

// The latest calls of a rank, oldest first.
std::vector<comm::Record> last_calls(const comm::Ring& ring, size_t count) {
  const size_t num_skipped = ring.records.size() - std::min(count, ring.records.size());
  return {ring.records.begin() + static_cast<std::ptrdiff_t>(num_skipped), ring.records.end()};
}

std::string group_of(const comm::Ring& ring, const comm::Record& record) {
  return record.group < 0 ? "?" : ring.groups[record.group].name;
}

nlohmann::json to_json(const comm::Ring& ring, const comm::Record& record) {
  nlohmann::json object = {{"group", group_of(ring, record)},
                           {"sequence", record.sequence},
                           {"operation", record.operation},
                           {"call", comm::to_string(record)},
                           {"background", record.is_background},
                           {"state", name_of(record.state)},
                           {"issued_seconds_ago", in_seconds(ring.now - record.issued)}};
  if (record.state >= comm::CallState::kDone) {
    object["seconds"] = in_seconds(record.ended - record.issued);
  }
  return object;
}

// Without a recorder, the event log decides.
int exit_code_of(const std::vector<comm::Finding>& findings, const std::optional<RunStory>& story) {
  if (findings.empty()) return story && !story->story.end_cause.empty() ? kPeerLost : kDone;
  if (comm::is_healthy(findings)) return kDone;
  const bool is_silent = findings.front().kind == comm::Finding::Kind::kUnrecorded;
  return is_silent ? kUserError : kPeerLost;
}

void print_json(const DoctorArguments& arguments, const std::vector<comm::ObservedRank>& ranks,
                const std::vector<comm::Finding>& findings, const std::optional<RunStory>& story) {
  nlohmann::json object = {{"run", arguments.run},
                           {"healthy", exit_code_of(findings, story) == kDone},
                           {"findings", nlohmann::json::array()},
                           {"ranks", nlohmann::json::array()}};
  for (const comm::Finding& finding : findings) {
    nlohmann::json line = {
        {"kind", comm::name_of(finding.kind)}, {"ranks", finding.ranks}, {"text", finding.text}};
    if (!finding.operation.empty()) {
      line["group"] = finding.group;
      line["sequence"] = finding.sequence;
      line["operation"] = finding.operation;
      line["waited_seconds"] = in_seconds(finding.waited);
    }
    object["findings"].push_back(line);
  }
  for (const comm::ObservedRank& rank : ranks) {
    nlohmann::json line = {{"rank", rank.ring.rank},
                           {"host", rank.ring.host},
                           {"process_id", rank.ring.process_id},
                           {"process", comm::process_word(rank)},
                           {"calls", nlohmann::json::array()}};
    for (const comm::Record& record :
         last_calls(rank.ring, std::max<size_t>(1, arguments.num_calls)))
      line["calls"].push_back(to_json(rank.ring, record));
    object["ranks"].push_back(line);
  }
  if (story) object["story"] = story_json(story->log, story->story);
  std::printf("%s\n", json_text(object).c_str());
}

void print_calls(const comm::ObservedRank& rank, size_t count) {
  std::printf("rank %d, process %lld on %s (%s):\n", rank.ring.rank,
              static_cast<long long>(rank.ring.process_id), printable(rank.ring.host).c_str(),
              comm::process_word(rank));
  for (const comm::Record& record : last_calls(rank.ring, count)) {
    std::printf("  %10.3f s ago  %-7s  %s #%llu  %s%s\n", in_seconds(rank.ring.now - record.issued),
                name_of(record.state), printable(group_of(rank.ring, record)).c_str(),
                static_cast<unsigned long long>(record.sequence),
                printable(comm::to_string(record)).c_str(),
                record.is_background ? " in the background" : "");
  }
}

int doctor(const DoctorArguments& arguments) {
  TRIREME_CHECK(arguments.late_after >= 0, "--late-after is ", arguments.late_after,
                "; expected at least 0 seconds");
  const std::vector<comm::ObservedRank> ranks = observe(arguments);
  std::vector<comm::Finding> findings;
  if (!ranks.empty()) {
    findings = comm::diagnose(
        ranks,
        {.late_after = std::chrono::milliseconds(std::llround(1000 * arguments.late_after))});
  }
  const std::optional<RunStory> story = story_of_run(arguments.run, ranks);
  if (arguments.json) {
    print_json(arguments, ranks, findings, story);
  } else {
    for (const comm::Finding& finding : findings)
      std::printf("%s\n", printable(finding.text).c_str());
    if (arguments.num_calls > 0) {
      for (const comm::ObservedRank& rank : ranks) print_calls(rank, arguments.num_calls);
    }
    if (story) {
      for (const std::string& line : story_lines(story->log, story->story))
        std::printf("%s\n", line.c_str());
    }
  }
  return exit_code_of(findings, story);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Diagnose a run, during the run or after a crash: which rank is late, dead or stopped,\n"
      "in which call and since when; which calls differ between ranks; who waits for whom.\n"
      "  trireme doctor runs/demo\n"
      "  trireme doctor runs/demo --calls 5 --late-after 1\n");
  command->add_option("run", arguments->run, "a run's folder (its output.folder)")->required();
  command
      ->add_option("--late-after", arguments->late_after,
                   "seconds that others must wait for a rank before it counts as late")
      ->check(within({0, 1e9}))
      ->capture_default_str();
  command
      ->add_option("--calls", arguments->num_calls, "number of last calls to list for every rank")
      ->check(within({0, 1e9}))
      ->capture_default_str();
  add_json(*command, arguments->json);
  command->footer(
      "Prints one finding per line, the most likely culprit first. Every rank records its\n"
      "calls in RUN/recorder; reading them does not disturb the run. All times are UTC. For a\n"
      "run that `trireme run` started, it also reads RUN/events.jsonl and reports what\n"
      "happened, the share of time in steps that were kept (goodput), and the time lost to\n"
      "each cause. Exit codes: 0 the run is healthy or has finished, 2 nothing was recorded, 3\n"
      "a rank is lost, stopped, late or without a recorder file, or ranks make different\n"
      "calls.");
  command->callback([arguments, &exit_code] { exit_code = doctor(*arguments); });
}

}  // namespace trireme::cli
