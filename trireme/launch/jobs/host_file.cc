#include "trireme/launch/jobs/host_file.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/job_hosts.h"

namespace trireme::launch {
namespace {

constexpr std::string_view kBlanks = " \t\r";
// Keeps a sum of slots from overflowing, whatever the file says.
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
  // from_chars and not stoi: no sign, no blanks, no locale.
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
    // However often a file repeats a host, the sum stays in range.
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
    // LSF writes a bare number, Open MPI key=value.
    const size_t equals = word.find('=');
    const std::string_view key =
        equals == std::string_view::npos ? "slots" : word.substr(0, equals);
    const int number = slots_of(word.substr(equals == std::string_view::npos ? 0 : equals + 1));
    if (number < 0) return -1;
    if (key == "slots") {
      slots = number;
    } else if (key != "max_slots" && key != "max-slots") {
      // Open MPI's limits on slots say nothing about the hosts.
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

constexpr const char* kSayBlaunch =
    "expected the variables of an LSF job, in which blaunch starts it";

// The file has no limit in length. LSF leaves LSB_HOSTS out when it is long.
std::string_view list_variable(const Variables& variables) {
  return first_set(variables, {"LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS"});
}

constexpr const char* kSayQsub = "expected the variables of a PBS job, in which qsub starts it";

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
  // The whole name first: two hosts may differ in their domain only.
  if (whole != hosts.end()) return static_cast<int>(whole - hosts.begin());
  const auto is_short = [&](const JobHost& host) {
    // Two addresses may begin with the same number.
    // A scheduler may have the full name and the kernel the short one, or the reverse.
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

std::vector<JobHost> hosts_of_lsf(const Variables& variables) {
  const std::string_view list = list_variable(variables);
  if (list.empty()) return {};
  const std::string& value = value_of(variables, list);
  std::vector<JobHost> hosts = list == "LSB_DJOB_HOSTFILE" ? read_host_file(list, value)
                               : list == "LSB_MCPU_HOSTS"  ? count_host_pairs(list, value)
                                                           : count_hosts(list, value);
  // LSF's own sum: a list that was cut short must not become a smaller job.
  if (!value_of(variables, "LSB_DJOB_NUMPROC").empty()) {
    const auto add = [](int64_t sum, const JobHost& host) { return sum + host.slots; };
    const int64_t slots = std::accumulate(hosts.begin(), hosts.end(), int64_t{0}, add);
    const int processes = number_of(variables, "LSB_DJOB_NUMPROC", 1, "LSF has");
    TRIREME_CHECK(slots == processes, list, " = ", shown(value), " has ", slots,
                  " slots; expected LSB_DJOB_NUMPROC = ", processes, ", ", kSayHosts);
  }
  return hosts;
}

std::optional<JobHosts> read_lsf(const JobView& view) {
  const Variables& variables = view.variables;
  const std::string_view list = list_variable(variables);
  if (list.empty() && first_set(variables, {"LSB_JOBID", "LSB_DJOB_NUMPROC"}).empty()) {
    return std::nullopt;
  }
  JobHosts job{.scheduler = "LSF"};
  job.id = needed(variables, "LSB_JOBID", kSayBlaunch);
  const std::string& element = value_of(variables, "LSB_JOBINDEX");  // of an array; else 0
  // Elements of an array share LSB_JOBID, and their agents must not meet.
  if (!element.empty() && element != "0") job.id += "." + element;
  needed(variables, list.empty() ? "LSB_DJOB_HOSTFILE" : list, kSayBlaunch);
  job.hosts = hosts_of_lsf(variables);
  job.min_hosts = static_cast<int>(job.hosts.size());
  job.node_rank = index_of_host(list, value_of(variables, list), job.hosts, view.hostname);
  job.port = comm::port_of_job("lsf-" + job.id);
  return job;
}

std::vector<JobHost> hosts_of_pbs(const Variables& variables) {
  const std::string& path = value_of(variables, "PBS_NODEFILE");
  if (path.empty()) return {};
  std::vector<JobHost> hosts = read_host_file("PBS_NODEFILE", path);
  const auto add = [](int sum, const JobHost& host) { return sum + host.slots; };
  const int lines = std::accumulate(hosts.begin(), hosts.end(), 0, add);
  // Torque's number of lines: fewer of them are a file that was cut short.
  if (!value_of(variables, "PBS_NP").empty()) {
    const int processes = number_of(variables, "PBS_NP", 1, "PBS has");
    TRIREME_CHECK(processes == lines, "PBS_NODEFILE = ", shown(path), " has ", lines,
                  " lines; expected PBS_NP = ", processes, ", ", kSayHosts);
  }
  // With one line per host, the number of cores is in a variable if anywhere: Torque's or
  // OpenPBS's.
  const std::string_view cores = first_set(variables, {"PBS_NUM_PPN", "NCPUS"});
  if (lines == static_cast<int>(hosts.size()) && !cores.empty()) {
    const int slots = number_of(variables, cores, 1, "PBS has");
    for (JobHost& host : hosts) host.slots = slots;
  }
  return hosts;
}

std::optional<JobHosts> read_pbs(const JobView& view) {
  const Variables& variables = view.variables;
  if (first_set(variables, {"PBS_JOBID", "PBS_NODEFILE", "PBS_ENVIRONMENT"}).empty()) {
    return std::nullopt;
  }
  JobHosts job{.scheduler = "PBS"};
  job.id = needed(variables, "PBS_JOBID", kSayQsub);
  const std::string& path = needed(variables, "PBS_NODEFILE", kSayQsub);
  job.hosts = hosts_of_pbs(variables);
  job.min_hosts = static_cast<int>(job.hosts.size());
  job.node_rank = index_of_host("PBS_NODEFILE", path, job.hosts, view.hostname);
  job.port = comm::port_of_job("pbs-" + job.id);
  return job;
}

}  // namespace trireme::launch
