#include "trireme/launch/jobs/host_file.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/schedulers.h"

namespace trireme::launch::inline internal {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr int kMaxSlots = 1 << 20;
constexpr size_t kMaxNameBytes = 255;  // of DNS

// Takes the first word of `text`, which it shortens; "" at the end.
std::string_view take_word(std::string_view& text) {
  const size_t start = std::min(text.find_first_not_of(kBlanks), text.size());
  const size_t end = std::min(text.find_first_of(kBlanks, start), text.size());
  const std::string_view word = text.substr(start, end - start);
  text.remove_prefix(end);
  return word;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// "8" -> 8; -1 for anything but a number of slots.
int slots_of(std::string_view text) {
  int slots = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && slots >= 0 && slots <= kMaxSlots ? slots : -1;
}

// Hosts in the order of their first appearance.
class HostTable {
 public:
  explicit HostTable(std::string where) : where_(std::move(where)) {}

  void add(std::string_view name, int slots) {
    TRIREME_CHECK(is_printable(name, kMaxNameBytes), where_, " has the host \"", shown(name),
                  "\"; expected a name of at most ", kMaxNameBytes,
                  " bytes without control characters");
    const auto [found, is_new] = indexes_.try_emplace(std::string(name), hosts_.size());
    if (is_new) hosts_.push_back({std::string(name), 0});
    TRIREME_CHECK(hosts_.size() <= comm::kMaxJobHosts, where_, " has more than ",
                  comm::kMaxJobHosts, " hosts; expected the hosts of one job");
    int& sum = hosts_[found->second].slots;
    sum = std::min(sum + slots, kMaxSlots);
  }

  std::vector<JobHost> take() {
    TRIREME_CHECK(!hosts_.empty(), where_, " has no host; expected at least one, ", kSayHosts);
    return std::move(hosts_);
  }

 private:
  std::string where_;
  std::vector<JobHost> hosts_;
  std::unordered_map<std::string, size_t> indexes_;
};

// The slots that the words behind a host's name give it; -1 when they are something else.
int slots_of_line(std::string_view rest) {
  int slots = 1;
  for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
    const size_t equals = word.find('=');
    const std::string_view key =
        equals == std::string_view::npos ? "slots" : word.substr(0, equals);
    const int number = slots_of(word.substr(equals == std::string_view::npos ? 0 : equals + 1));
    if (number < 0) return -1;
    if (key == "slots") {
      slots = number;
    } else if (key != "max_slots" && key != "max-slots") {
      return -1;
    }
  }
  return slots;
}

std::string text_of(std::string_view variable, const std::string& path) {
  try {
    return read_file(path, kMaxHostFileBytes);
  } catch (const Error& error) {
    throw ConfigError(concat("environment variable ", variable, " is \"", shown(path),
                             "\": ", error.what(),
                             "; expected the file that lists the job's hosts, ", kSayHosts));
  }
}

std::string_view short_name(std::string_view name) { return name.substr(0, name.find('.')); }

}  // namespace

std::vector<JobHost> read_host_file(std::string_view variable, const std::string& path) {
  const std::string text = text_of(variable, path);
  const std::string where = concat(variable, " = ", shown(path));
  HostTable table(where);
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    std::string_view line = take_line(rest);
    line = line.substr(0, line.find('#'));
    const std::string_view name = take_word(line);
    if (name.empty()) continue;
    const int slots = slots_of_line(line);
    TRIREME_CHECK(slots >= 0, where, " has line ", number, " \"", shown(concat(name, line)),
                  "\"; expected HOST, HOST N or HOST slots=N");
    table.add(name, slots);
  }
  return table.take();
}

std::vector<JobHost> count_hosts(std::string_view variable, std::string_view words) {
  HostTable table{std::string(variable)};
  for (std::string_view word = take_word(words); !word.empty(); word = take_word(words)) {
    table.add(word, 1);
  }
  return table.take();
}

std::vector<JobHost> count_host_pairs(std::string_view variable, std::string_view words) {
  HostTable table{std::string(variable)};
  for (std::string_view name = take_word(words); !name.empty(); name = take_word(words)) {
    const std::string_view number = take_word(words);
    const int slots = slots_of(number);
    TRIREME_CHECK(slots >= 0, variable, " has \"", shown(number), "\" behind host ", shown(name),
                  "; expected pairs of a host and a number, as in \"a 2 b 1\"");
    table.add(name, slots);
  }
  return table.take();
}

int index_of_host(std::string_view variable, std::string_view value,
                  const std::vector<JobHost>& hosts, std::string_view hostname) {
  const auto whole = std::ranges::find(hosts, hostname, &JobHost::name);
  if (whole != hosts.end()) return static_cast<int>(whole - hosts.begin());
  const auto is_short = [&](const JobHost& host) {
    // Two addresses may begin with the same number.
    return !host.name.empty() && short_name(host.name) == short_name(hostname) &&
           short_name(hostname).find_first_not_of("0123456789") != std::string_view::npos;
  };
  const auto found = std::ranges::find_if(hosts, is_short);
  TRIREME_CHECK(found != hosts.end() && std::ranges::count_if(hosts, is_short) == 1, variable,
                " is \"", shown(value), "\" and does not name this host, \"", shown(hostname),
                "\", once among its ", hosts.size(), " (the first is ", shown(hosts[0].name),
                "); expected a process that the scheduler started on one of them, ", kSayHosts);
  return static_cast<int>(found - hosts.begin());
}

}  // namespace trireme::launch::inline internal
