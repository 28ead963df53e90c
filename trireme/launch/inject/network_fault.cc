#include "trireme/launch/inject/network_fault.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/launch/network/line_control.h"
#include "trireme/launch/network/tun_device.h"
#include "trireme/launch/process/child.h"

namespace trireme::launch {
namespace {

using Clock = std::chrono::steady_clock;

// A command that floods its output must not fill the agent's memory.
constexpr size_t kMostOutput = 64 << 10;

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
  return text;
}

std::string find_program(const std::string& name) {
  for (const char* const folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  throw Error(concat("this machine has no program ", name));
}

// Reads until the other end is closed. Returns whether that happened in time.
bool read_all(int from, Clock::time_point deadline, std::string& output) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd readable{.fd = from, .events = POLLIN, .revents = 0};
    // Errors of poll() are not told apart: the deadline ends the loop.
    if (::poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    const auto num_bytes = ::read(from, buffer.data(), buffer.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) return true;
    const auto room = kMostOutput - output.size();
    // Goes on reading beyond the limit, since a full pipe would stop the command.
    output.append(buffer.data(), std::min(room, static_cast<size_t>(num_bytes)));
  }
}

// Waits for its end, which is near: it was killed, or has closed its output.
ExitStatus await_end(Child& child) {
  // The end of the output need not be the end of the process, which has still to be collected.
  while (true) {
    if (const auto status = child.reap_group()) return *status;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

using Arguments = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  TextReader stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  TextReader stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The routes over `device`, as arguments of `ip` that add them again.
std::vector<Arguments> routes_over(const std::string& device) {
  // States that `ip` shows and does not take.
  const std::set<std::string> states = {"linkdown", "dead", "onlink", "offload", "trap"};
  std::vector<Arguments> routes;
  for (const char* const family : {"-4", "-6"}) {
    const std::string shown = run_command({"ip", family, "route", "show", "dev", device});
    for (const std::string& line : lines_of(shown)) {
      // replace and not add: the kernel restores some routes itself when the device comes up.
      Arguments route = {"ip", family, "route", "replace"};
      for (std::string& word : words_of(line)) {
        if (!states.contains(word)) route.push_back(std::move(word));
      }
      route.insert(route.end(), {"dev", device});
      routes.push_back(std::move(route));
    }
  }
  // A route through a gateway is refused until the gateway's own network is reachable.
  // So routes to neighbours come first.
  std::ranges::stable_partition(routes, [](const Arguments& route) {
    return std::ranges::find(route, "via") == route.end();
  });
  return routes;
}

// Without this the kernel takes a device's IPv6 addresses when it goes down. It may have no IPv6.
void keep_addresses(const std::string& device) {
  // Its failure is ignored: without IPv6 there is nothing to keep.
  std::ofstream("/proc/sys/net/ipv6/conf/" + device + "/keep_addr_on_down") << "1\n";
}

std::string decimal(double value) { return format("%.4f", value); }

// Explains the kernel's refusal.
[[noreturn]] void refuse(const Injection& injection, const std::string& device,
                         const std::string& reason) {
  const auto has = [&](const char* part) { return reason.find(part) != std::string::npos; };
  const char* meaning = "";
  if (has("kind is unknown") || has("qdisc not found")) {
    meaning = "the kernel has no netem; ";
  } else if (has("not permitted")) {
    meaning = "it needs CAP_NET_ADMIN; ";
  } else if (has("File exists")) {
    meaning = "the device has a delay or a loss already; ";
  }
  throw Error(
      concat("cannot inject ", name_of(injection.fault), " on ", device, ": ", meaning, reason));
}

}  // namespace

std::string run_command(const std::vector<std::string>& arguments,
                        std::chrono::milliseconds limit) {
  std::vector<std::string> command = arguments;
  command.front() = find_program(arguments.at(0));
  Pipe pipe = make_pipe(command.front());
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  // Messages in English, whatever the user's language is.
  Child child({.command = command,
               .environment = {{"LC_ALL", "C"}},
               .input = nothing.get(),
               .output = pipe.write_end.get(),
               .errors = pipe.write_end.get()},
              command.front());
  // This process's own copy would keep the pipe open, and its end would never come.
  pipe.write_end.close();
  std::string output;
  const bool has_ended = read_all(pipe.read_end.get(), Clock::now() + limit, output);
  if (!has_ended) child.kill_group();
  const ExitStatus status = await_end(child);
  while (output.ends_with('\n')) output.pop_back();
  if (!has_ended)
    throw Error(concat(joined(arguments), " takes longer than ", limit.count(), " ms"));
  if (status.code != 0) {
    throw Error(
        concat(joined(arguments), ": ",
               output.empty() ? "failed" : shown(output.substr(0, output.find('\n')), 200)));
  }
  return output;
}

NetworkFault::NetworkFault(const Injection& injection, std::string device)
    : fault_(injection.fault), device_(std::move(device)) {
  try {
    if (fault_ == InjectedFault::kPartition) {
      // Read before the device goes down, because the kernel forgets them then.
      routes_ = routes_over(device_);
      keep_addresses(device_);
      run_command({"ip", "link", "set", "dev", device_, "down"});
      return;
    }
    if (device_ == kNetworkInterface) {
      change_lines({injection.delay, injection.loss});
      return;
    }
    Arguments arguments = {"tc", "qdisc", "add", "dev", device_, "root", "netem"};
    if (fault_ == InjectedFault::kDelay) {
      arguments.insert(arguments.end(), {"delay", concat(injection.delay.count(), "ms")});
    } else if (fault_ == InjectedFault::kLoss) {
      arguments.insert(arguments.end(), {"loss", decimal(100 * injection.loss) + "%"});
    } else {
      throw InternalError(concat(name_of(fault_), " is not a network fault"));
    }
    run_command(arguments);
  } catch (const InternalError&) {
    // A bug of ours must not read as a refusal by the kernel.
    throw;
  } catch (const Error& error) {
    refuse(injection, device_, error.what());
  }
}

NetworkFault::~NetworkFault() {
  try {
    end();
  } catch (const std::exception&) {  // nobody is left to be told
  }
}

void NetworkFault::end() {
  // The destructor calls it too, and tries again what failed.
  if (has_ended_) return;
  if (fault_ != InjectedFault::kPartition && device_ == kNetworkInterface) {
    change_lines({});
    has_ended_ = true;
    return;
  }
  if (fault_ != InjectedFault::kPartition) {
    run_command({"tc", "qdisc", "del", "dev", device_, "root"});
    has_ended_ = true;
    return;
  }
  run_command({"ip", "link", "set", "dev", device_, "up"});
  std::string first_error;
  // All routes are tried. One that fails should not leave the host without the others.
  for (const Arguments& route : routes_) {
    try {
      run_command(route);
    } catch (const Error& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  if (!first_error.empty()) throw Error(concat(device_, " is up without a route: ", first_error));
  has_ended_ = true;
}

std::string network_device() {
  for (const char* const family : {"-4", "-6"}) {
    const std::string routes = run_command({"ip", family, "route", "show", "default"});
    const std::vector<std::string> words = words_of(routes);
    const auto found = std::ranges::find(words, "dev");
    if (found != words.end() && std::next(found) != words.end()) return *std::next(found);
  }
  std::set<std::string> devices;
  for (const std::string& line : lines_of(run_command({"ip", "-o", "link", "show", "up"}))) {
    const std::vector<std::string> words = words_of(line);  // "2: eth0@if3: <...> ..."
    if (words.size() < 2 || line.find("LOOPBACK") != std::string::npos) continue;
    devices.insert(words[1].substr(0, words[1].find_first_of("@:")));
  }
  if (devices.size() != 1) {
    throw Error(concat("cannot choose a network device: there is no default route, and ",
                       devices.size(), " devices are up besides the loopback; expected one"));
  }
  return *devices.begin();
}

bool is_network_of_machine() {
  struct stat own {
  }, first{};
  // In doubt it is the machine's network, and the fault is refused.
  if (::stat("/proc/self/ns/net", &own) != 0) return true;
  if (::stat("/proc/1/ns/net", &first) != 0) return false;  // another user's; no right to it either
  return own.st_ino == first.st_ino;
}

}  // namespace trireme::launch
