#include "trireme/cli/story_report.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"
#include "trireme/cli/terminal_text.h"

namespace trireme::cli {
namespace {

constexpr size_t kMostEventLines = 30;
constexpr size_t kMostHosts = 5;
constexpr size_t kMostCauses = 20;

// "4.2 s", "12m 30s", "1d 02h 05m".
std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (seconds < 99.95) return format("%.1f s", seconds);
  if (whole < 3600) return format("%lldm %02llds", whole / 60, whole % 60);
  if (whole < 86400) return format("%lldh %02lldm", whole / 3600, whole / 60 % 60);
  return format("%lldd %02lldh %02lldm", whole / 86400, whole / 3600 % 24, whole / 60 % 60);
}

std::string percent_text(double share) { return format("%.1f %%", 100 * share); }

std::string event_line(const launch::Event& event) {
  std::vector<std::string> parts;
  if (!event.cause.empty()) parts.push_back(event.cause);
  if (event.rank >= 0) parts.push_back(concat("rank ", event.rank));
  if (!event.host.empty()) parts.push_back("host " + event.host);
  if (event.step >= 0) parts.push_back(concat("step ", event.step));
  if (event.seconds > 0) parts.push_back(duration_text(event.seconds));
  if (!event.text.empty()) parts.push_back(event.text);
  return printable(concat(launch::to_text(event.time), "  epoch ", event.epoch, "  ",
                          name_of(launch::kEventKinds, event.kind), parts.empty() ? "" : "  ",
                          joined(parts)));
}

std::string cause_line(const launch::CauseShare& share) {
  std::string line =
      concat("lost    ", duration_text(share.lost_seconds()), ": ", share.cause, ", ");
  if (share.num_failures > 0) {
    line += concat(share.num_failures, share.num_failures == 1 ? " time, " : " times, ");
  }
  return printable(concat(line, duration_text(share.down_seconds), " until the next step, ",
                          share.num_repeated_steps,
                          share.num_repeated_steps == 1 ? " step repeated, " : " steps repeated, ",
                          duration_text(share.repeated_seconds)));
}

std::string state_of(const launch::Story& story) {
  if (!story.has_ended) return "it has not ended";
  return story.end_cause.empty() ? "it is done" : "it ended: " + story.end_cause;
}

std::string recovery_line(const std::vector<double>& seconds) {
  return concat("healed  ", seconds.size(), seconds.size() == 1 ? " time" : " times", ", median ",
                duration_text(median(seconds)), ", worst ",
                duration_text(*std::ranges::max_element(seconds)));
}

std::string goodput_line(const launch::Story& story) {
  const std::string wall = duration_text(story.wall_seconds);
  if (!story.goodput()) {
    return concat("goodput unknown: no step was reported in ", wall,
                  "; programs other than `trireme train` do not report theirs");
  }
  return concat("goodput ", percent_text(*story.goodput()), ": ", duration_text(story.kept_seconds),
                " of ", wall, " in steps that were kept, ", duration_text(story.start_seconds),
                " until the first step");
}

std::string host_line(const launch::Story& story) {
  std::string names;
  for (size_t i = 0; i < std::min(kMostHosts, story.hosts.size()); ++i) {
    names += concat(i == 0 ? "" : ", ", story.hosts[i].first, " ", story.hosts[i].second);
  }
  return printable(
      concat("hosts   failures: ", names, story.hosts.size() > kMostHosts ? ", ..." : ""));
}

}  // namespace

std::vector<std::string> story_lines(const launch::EventLog& log, const launch::Story& story) {
  std::vector<std::string> lines;
  const size_t skipped = log.events.size() - std::min(kMostEventLines, log.events.size());
  if (skipped > 0)
    lines.push_back(concat("events  ", skipped, " earlier ones are in --json or the file"));
  for (size_t i = skipped; i < log.events.size(); ++i) lines.push_back(event_line(log.events[i]));
  if (log.num_unreadable > 0 || log.is_cut) {
    lines.push_back(
        concat("events  ", log.num_unreadable, " unreadable lines",
               log.is_cut ? "; there are too many lines, and the last were not read" : ""));
  }
  lines.push_back(printable(concat(
      "run     ", story.num_epochs, story.num_epochs == 1 ? " epoch, " : " epochs, ",
      story.num_failures, story.num_failures == 1 ? " failure" : " failures",
      story.last_step < 0 ? "" : concat(", step ", story.last_step), "; ", state_of(story))));
  lines.push_back(goodput_line(story));
  for (size_t i = 0; i < std::min(kMostCauses, story.causes.size()); ++i) {
    lines.push_back(cause_line(story.causes[i]));
  }
  if (!story.recovery_seconds.empty()) lines.push_back(recovery_line(story.recovery_seconds));
  if (!story.hosts.empty()) lines.push_back(host_line(story));
  return lines;
}

nlohmann::json story_json(const launch::EventLog& log, const launch::Story& story) {
  nlohmann::json object = {{"ended", story.has_ended},
                           {"end_cause", story.end_cause},
                           {"epochs", story.num_epochs},
                           {"failures", story.num_failures},
                           {"last_step", story.last_step},
                           {"jobs_without_end", story.num_without_end},
                           {"goodput", nullptr},  // unknown
                           {"wall_seconds", story.wall_seconds},
                           {"kept_seconds", story.kept_seconds},
                           {"start_seconds", story.start_seconds},
                           {"unreadable_lines", log.num_unreadable},
                           {"causes", nlohmann::json::array()},
                           {"hosts", nlohmann::json::array()},
                           {"events", nlohmann::json::array()}};
  if (story.goodput()) object["goodput"] = *story.goodput();
  for (const launch::CauseShare& share : story.causes) {
    object["causes"].push_back({{"cause", share.cause},
                                {"failures", share.num_failures},
                                {"down_seconds", share.down_seconds},
                                {"repeated_seconds", share.repeated_seconds},
                                {"repeated_steps", share.num_repeated_steps}});
  }
  if (!story.recovery_seconds.empty()) {
    object["recovery_seconds"] = {{"count", story.recovery_seconds.size()},
                                  {"median", median(story.recovery_seconds)},
                                  {"worst", *std::ranges::max_element(story.recovery_seconds)}};
  }
  for (const auto& [host, failures] : story.hosts) {
    object["hosts"].push_back({{"host", host}, {"failures", failures}});
  }
  const size_t skipped = log.events.size() - std::min(kMostListedEvents, log.events.size());
  for (size_t i = skipped; i < log.events.size(); ++i) {
    object["events"].push_back(nlohmann::json::parse(launch::to_json_line(log.events[i])));
  }
  return object;
}

}  // namespace trireme::cli
