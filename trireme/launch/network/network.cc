#include "trireme/launch/network/network.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <poll.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/machine/group_guard.h"
#include "trireme/base/random/random.h"
#include "trireme/launch/network/host_space.h"
#include "trireme/launch/network/network_address.h"
#include "trireme/launch/network/packet_paths.h"
#include "trireme/launch/network/tun_device.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {

// One thread moves all packets: it waits for a device, the next arrival or a signal. Each host has
// a thread that only holds its namespaces (host_space.h). Nothing of a network has a name on this
// machine, so a process that is killed leaves no namespace and no device: the kernel kills its
// commands, a guard what these have started in their groups, and the next network what else has
// this one's mark.

namespace {

constexpr const char* kLeaderPort = "29400";
// From one host before the others have their turn.
constexpr int kMostReads = 64;
constexpr size_t kMostPacketBytes = 65'536;

std::string with_words(std::string text,
                       std::initializer_list<std::pair<std::string_view, std::string>> words) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto* const found = std::ranges::find_if(
        words, [&](const auto& word) { return text.substr(at).starts_with(word.first); });
    result += found != words.end() ? found->second : text.substr(at, 1);
    at += found != words.end() ? found->first.size() : 1;
  }
  return result;
}

struct Host {
  std::unique_ptr<HostSpace> space;
  std::optional<TunDevice> cable;
  std::optional<Child> child;  // ends before the space
  std::optional<ExitStatus> status;
};

int exit_code_of(const ExitStatus& status) {
  return status.signal != 0 ? 128 + status.signal : status.code;
}

class Network {
 public:
  explicit Network(const NetworkOptions& options)
      : options_(options), paths_(options.network), hosts_(options.network.hosts.size()) {
    guard_.begin();
    for (size_t i = 0; i < hosts_.size(); ++i) make_host(i);
    // All hosts can be reached before the first command looks for another.
    const std::string token = unique_name();
    for (size_t i = 0; i < hosts_.size(); ++i) start_command(i, token);
  }

  ~Network() {
    for (Host& host : hosts_) host.child.reset();
    kill_marked(network_mark());
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  NetworkReport run() {
    while (num_running() > 0) {
      wait();
      deliver();
      for (const Host& host : hosts_) take_from(host);
      handle_signals();
      collect();
      if (kill_at_ns_ && monotonic_ns() >= *kill_at_ns_) {
        for (const Host& host : hosts_) signal_command(host, SIGKILL);
      }
    }
    // What the commands sent last is counted too.
    for (const Host& host : hosts_) {
      while (take_from(host)) continue;
    }
    return report();
  }

 private:
  void make_host(size_t index) {
    Host& host = hosts_[index];
    host.space = std::make_unique<HostSpace>(options_.network.hosts[index]);
    host.space->run([&] {
      host.cable.emplace(kNetworkInterface, network_address(index), options_.network.mtu);
    });
  }

  void start_command(size_t index, const std::string& token) {
    ChildOptions child{
        .command = command_of_host(options_, index),
        .environment = with_host_variables(options_.environment, options_.network, index, token),
        .input = nothing_.get(),
        .output = options_.output,
        .guard = &guard_};
    child.environment[kNetworkVariable] = network_mark();
    const std::string name = "the command of host " + options_.network.hosts[index];
    Host& host = hosts_[index];
    host.space->run([&] { host.child.emplace(child, name); });
  }

  size_t num_running() const {
    return static_cast<size_t>(
        std::ranges::count_if(hosts_, [](const Host& host) { return !host.status; }));
  }

  // Until a host sends, a packet arrives, a signal comes or the grace is over.
  void wait() {
    std::vector<pollfd> events = {{signals_.descriptor(), POLLIN, 0}};
    for (const Host& host : hosts_) events.push_back({host.cable->descriptor(), POLLIN, 0});
    std::optional<int64_t> until_ns = paths_.next_time();
    if (kill_at_ns_) until_ns = std::min(until_ns.value_or(*kill_at_ns_), *kill_at_ns_);
    timespec left{};
    if (until_ns) {
      const int64_t left_ns = std::max<int64_t>(0, *until_ns - monotonic_ns());
      left = {left_ns / 1'000'000'000, left_ns % 1'000'000'000};
    }
    // A failure is an interruption; the loop tries again.
    ::ppoll(events.data(), events.size(), until_ns ? &left : nullptr, nullptr);
  }

  void deliver() {
    while (const auto arrival = paths_.next(monotonic_ns())) {
      // A host that takes no packet loses it, as one that is overloaded.
      hosts_[arrival->host].cable->write(arrival->packet);
    }
  }

  // Returns whether there may be more.
  bool take_from(const Host& host) {
    const auto index = static_cast<size_t>(&host - hosts_.data());
    for (int i = 0; i < kMostReads; ++i) {
      const auto packet = host.cable->read(buffer_);
      if (packet.empty()) return false;
      paths_.take(index, monotonic_ns(), packet);
    }
    return true;
  }

  void handle_signals() {
    while (const auto signal = signals_.next()) {
      if (*signal == SIGCHLD) continue;
      // The second one does not wait any more.
      const bool is_first = !kill_at_ns_;
      kill_at_ns_ =
          monotonic_ns() + (is_first ? std::chrono::nanoseconds(options_.grace).count() : 0);
      if (exit_code_ == 0) exit_code_ = 128 + *signal;
      for (const Host& host : hosts_) signal_command(host, *signal);
    }
  }

  static void signal_command(const Host& host, int signal) {
    if (host.child && !host.status) ::kill(-host.child->pid(), signal);
  }

  void collect() {
    for (Host& host : hosts_) {
      if (host.status) continue;
      host.status = host.child->reap_group();
      if (host.status && exit_code_ == 0) exit_code_ = exit_code_of(*host.status);
    }
  }

  NetworkReport report() const {
    NetworkReport report;
    report.exit_code = exit_code_;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      report.hosts.push_back(
          {options_.network.hosts[i], network_address(i), hosts_[i].status.value_or(ExitStatus())});
    }
    for (const PacketPaths::Direction& direction : paths_.directions()) {
      report.directions.push_back({options_.network.hosts[direction.from],
                                   options_.network.hosts[direction.to], direction.counts});
    }
    return report;
  }

  const NetworkOptions& options_;
  // Before the threads, which inherit that the signals are blocked.
  const SignalWatch signals_{SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  const Descriptor nothing_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  GroupGuard guard_;
  PacketPaths paths_;
  std::array<std::byte, kMostPacketBytes> buffer_{};
  std::vector<Host> hosts_;
  std::optional<int64_t> kill_at_ns_;  // after a signal
  int exit_code_ = 0;
};

}  // namespace

std::vector<std::string> command_of_host(const NetworkOptions& options, size_t index) {
  const NetworkFile& network = options.network;
  std::vector<std::string> command;
  for (const std::string& word : options.command) {
    command.push_back(with_words(word, {{"{host}", network.hosts[index]},
                                        {"{address}", network_address(index)},
                                        {"{index}", std::to_string(index)},
                                        {"{hosts}", std::to_string(network.hosts.size())},
                                        {"{first}", network_address(0)}}));
  }
  return command;
}

Environment with_host_variables(Environment environment, const NetworkFile& network, size_t index,
                                const std::string& token) {
  // A job in which `trireme network` itself runs has other hosts than these.
  std::erase_if(environment, [](const auto& variable) {
    return variable.first.starts_with("PET_") || variable.first == "JOB_COMPLETION_INDEX";
  });
  environment["PET_NNODES"] = std::to_string(network.hosts.size());
  environment["PET_NODE_RANK"] = std::to_string(index);
  environment["PET_MASTER_ADDR"] = network_address(0);
  environment["PET_MASTER_PORT"] = kLeaderPort;
  if (!environment.contains("TRIREME_TOKEN_FILE")) environment.try_emplace("TRIREME_TOKEN", token);
  return environment;
}

NetworkReport run_network(const NetworkOptions& options,
                          const std::function<void(const std::string&)>& say) {
  const int num_left = kill_left_over();
  if (num_left > 0) {
    say(concat("removed ", num_left, num_left == 1 ? " process" : " processes",
               " of an earlier network that was killed"));
  }
  const auto network = std::make_unique<Network>(options);
  return network->run();
}

}  // namespace trireme::launch
