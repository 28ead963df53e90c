#include "trireme/launch/membership/report.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/launch/membership/rank_plan.h"

namespace trireme::launch {
namespace {

constexpr Choice<WorkerState> kWorkerStates[] = {{"running", WorkerState::kRunning},
                                                 {"left", WorkerState::kLeft},
                                                 {"spare", WorkerState::kSpare},
                                                 {"done", WorkerState::kDone},
                                                 {"failed", WorkerState::kFailed}};

nlohmann::json to_value(const WorkerReport& worker) {
  nlohmann::json value = {{"state", name_of(kWorkerStates, worker.state)},
                          {"rank", worker.rank},
                          {"first_step", worker.first_step},
                          {"code", worker.code},
                          {"signal", worker.signal},
                          // Cut here and again where it is read: a peer of another version may not
                          // cut.
                          {"message", worker.message.substr(0, kMaxReasonBytes)}};
  // Left out when it is unknown. Zero would be a step.
  if (worker.step) value["step"] = *worker.step;
  return value;
}

WorkerReport to_worker(const JsonView& value) {
  const auto step = value.find("step");
  return {.state = choose(kWorkerStates, "state", value.at("state").word()),
          .rank = static_cast<int>(value.at("rank").integer(-1, kMaxRanks)),
          .step = step ? std::optional(step->integer(0)) : std::nullopt,
          .first_step = value.at("first_step").integer(0),
          .code = static_cast<int>(value.at("code").integer(-1, 255)),
          .signal = static_cast<int>(value.at("signal").integer(0, 128)),
          .message = value.at("message").text().substr(0, kMaxReasonBytes)};
}

// With a wrong config nearly everything differs, and the first keys say so.
constexpr size_t kMostDifferences = 3;

// Without a comment. A "#" within quotes is none.
std::string_view without_comment(std::string_view line) {
  bool is_quoted = false;
  // No parser: both texts are compared by the same rule, and a TOML error is found by the program
  // itself.
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') is_quoted = !is_quoted;
    if (line[i] == '#' && !is_quoted) return line.substr(0, i);
  }
  return line;
}

template <typename Function>
void for_each_line(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    function(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::map<std::string, std::string> values_of(std::string_view program) {
  std::map<std::string, std::string> values;
  for_each_line(program, [&](std::string_view line) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      values.emplace(trimmed(line), "");
    } else {
      values[std::string(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
    }
  });
  return values;
}

}  // namespace

std::string describe(const DeadLink& link) {
  return concat(link.from->name, " does not reach ", link.to->name, " at ", link.to->link_address,
                " (", link.reason, ")");
}

std::vector<DeadLink> dead_links(const std::vector<const HostReport*>& hosts, int64_t number) {
  std::vector<DeadLink> links;
  for (const HostReport* from : hosts) {
    // An answer to an older question describes links that may have changed.
    if (from->links_known != number) continue;
    for (const Unreached& each : from->unreached) {
      const auto to = std::ranges::find(hosts, each.id, &HostReport::id);
      if (to == hosts.end() || *to == from) continue;
      // The reverse of a link that is known adds nothing, and would count its hosts twice.
      const bool is_known = std::ranges::any_of(
          links, [&](const DeadLink& link) { return link.from == *to && link.to == from; });
      if (!is_known) links.push_back({from, *to, each.reason});
    }
  }
  return links;
}

std::vector<const HostReport*> hosts_to_drop(const std::vector<const HostReport*>& hosts,
                                             std::vector<DeadLink> links) {
  std::vector<const HostReport*> dropped;
  // Greedy, and not the smallest possible set: that is a vertex cover, which takes exponential
  // time. With one broken host or one broken link both agree.
  while (!links.empty()) {
    const HostReport* worst = nullptr;
    std::ptrdiff_t most = 0;
    for (const HostReport* host : hosts) {
      const auto count = std::ranges::count_if(
          links, [&](const DeadLink& link) { return link.from == host || link.to == host; });
      // >=, so that of hosts with equally many dead links the last one goes.
      if (count >= most && count > 0) {
        worst = host;
        most = count;
      }
    }
    dropped.push_back(worst);
    std::erase_if(links,
                  [&](const DeadLink& link) { return link.from == worst || link.to == worst; });
  }
  return dropped;
}

std::string to_json(const HostReport& report) {
  nlohmann::json workers = nlohmann::json::array();
  for (const WorkerReport& worker : report.workers) workers.push_back(to_value(worker));
  nlohmann::json unreached = nlohmann::json::array();
  for (const Unreached& each : report.unreached) {
    unreached.push_back({{"id", each.id}, {"reason", each.reason.substr(0, kMaxReasonBytes)}});
  }
  return nlohmann::json{{"id", report.id},
                        {"name", report.name},
                        {"address", report.address},
                        {"port", report.port},
                        {"node_rank", report.node_rank},
                        {"num_workers", report.num_workers},
                        {"epoch", report.epoch},
                        {"is_leaving", report.is_leaving},
                        {"notice", report.notice.substr(0, kMaxReasonBytes)},
                        {"is_ending", report.is_ending},
                        {"keeps_workers", report.keeps_workers},
                        {"program", report.program.substr(0, kMaxProgramBytes)},
                        {"beat", report.beat},
                        {"clock_us", report.clock_us},
                        {"link_address", report.link_address},
                        {"link_port", report.link_port},
                        {"links_known", report.links_known},
                        {"unreached", std::move(unreached)},
                        {"workers", std::move(workers)},
                        {"observations", to_json(report.observations)}}
      // As in a plan: messages of workers may hold any bytes.
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

HostReport parse_report(std::string_view text, const std::string& source) {
  const nlohmann::json root = parse_json(text, source, kMessageLimits);
  const JsonView view(root, source);
  HostReport report{.id = view.at("id").word(),
                    .name = view.at("name").word(),
                    .address = view.at("address").word(),
                    .port = static_cast<int>(view.at("port").integer(0, 65535)),
                    .node_rank = static_cast<int>(view.at("node_rank").integer(-1, kMaxRanks)),
                    .num_workers = static_cast<int>(view.at("num_workers").integer(1, kMaxWorkers)),
                    .epoch = static_cast<int>(view.at("epoch").integer(0, kMaxEpoch)),
                    .is_leaving = view.at("is_leaving").boolean(),
                    .notice = view.at("notice").text().substr(0, kMaxReasonBytes),
                    .is_ending = view.at("is_ending").boolean(),
                    .keeps_workers = view.at("keeps_workers").boolean(),
                    .program = view.at("program").text().substr(0, kMaxProgramBytes),
                    .beat = view.at("beat").integer(0),
                    .clock_us = view.at("clock_us").integer(0),
                    .link_address = view.at("link_address").text(),
                    .link_port = static_cast<int>(view.at("link_port").integer(0, 65535)),
                    .links_known = view.at("links_known").integer(0)};
  for (const JsonView& each : view.at("unreached").elements()) {
    report.unreached.push_back(
        {each.at("id").word(), each.at("reason").text().substr(0, kMaxReasonBytes)});
  }
  for (const JsonView& worker : view.at("workers").elements()) {
    report.workers.push_back(to_worker(worker));
  }
  // As a text within the text: observations have limits of their own.
  report.observations =
      parse_observations(view.at("observations").text(), source + ": observations");
  TRIREME_CHECK(static_cast<int>(report.workers.size()) <= report.num_workers, source, " has ",
                report.workers.size(),
                " workers; expected at most num_workers = ", report.num_workers);
  return report;
}

std::string describe(const WorkerReport& worker, const std::string& host) {
  const std::string who = concat(worker.rank < 0 ? "a worker" : concat("rank ", worker.rank),
                                 host.empty() ? "" : " on " + host);
  if (worker.signal != 0) return concat(who, " was ", killed_by(worker.signal));
  if (worker.state == WorkerState::kLeft)
    return concat(who, " lost its peers: ", shown(worker.message, 160));
  const std::string how = concat(who, " exited with code ", worker.code);
  return worker.message.empty() ? how : concat(how, ": ", worker.message);
}

std::string config_lines(std::string_view toml) {
  std::string lines;
  std::string section;
  for_each_line(toml, [&](std::string_view line) {
    line = trimmed(without_comment(line));
    if (line.empty()) return;
    if (line.front() == '[' && line.back() == ']' && line.find('=') == std::string_view::npos) {
      section = concat(trimmed(line.substr(1, line.size() - 2)), ".");
      return;
    }
    const size_t equals = line.find('=');
    const std::string_view key = trimmed(line.substr(0, equals));
    lines += concat(section, key);
    if (equals != std::string_view::npos) lines += concat(" = ", trimmed(line.substr(equals + 1)));
    lines += '\n';
  });
  return lines;
}

std::string program_difference(std::string_view theirs, std::string_view ours) {
  const auto there = values_of(theirs);
  const auto here = values_of(ours);
  // Keys of both sides: one that is set on one host only differs too.
  std::set<std::string> keys;
  for (const auto& [key, value] : there) keys.insert(key);
  for (const auto& [key, value] : here) keys.insert(key);
  std::vector<std::string> differences;
  const auto value_in = [](const auto& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("not set") : shown(found->second);
  };
  for (const std::string& key : keys) {
    const std::string a = value_in(there, key);
    const std::string b = value_in(here, key);
    if (a != b) differences.push_back(concat(shown(key), " is ", a, ", and ", b, " on the leader"));
  }
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kMostDifferences); ++i) {
    text += concat(text.empty() ? "" : "; ", differences[i]);
  }
  const size_t num_more = differences.size() - std::min(differences.size(), kMostDifferences);
  return num_more > 0 ? concat(text, "; and ", num_more, " more") : text;
}

}  // namespace trireme::launch
