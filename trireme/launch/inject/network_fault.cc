#include "trireme/launch/inject/network_fault.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include <sys/stat.h>

#include "trireme/base/error.h"
#include "trireme/launch/inject/command.h"

namespace trireme::launch::inline internal {
namespace {

using Arguments = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
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
      Arguments route = {"ip", family, "route", "replace"};
      for (std::string& word : words_of(line)) {
        if (!states.contains(word)) route.push_back(std::move(word));
      }
      route.insert(route.end(), {"dev", device});
      routes.push_back(std::move(route));
    }
  }
  // Those to neighbours first: the others go over them.
  std::ranges::stable_partition(routes, [](const Arguments& route) {
    return std::ranges::find(route, "via") == route.end();
  });
  return routes;
}

// Without this the kernel takes a device's IPv6 addresses when it goes down. It may have no IPv6.
void keep_addresses(const std::string& device) {
  std::ofstream("/proc/sys/net/ipv6/conf/" + device + "/keep_addr_on_down") << "1\n";
}

std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

// Says what the kernel's refusal means.
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

NetworkFault::NetworkFault(const Injection& injection, std::string device)
    : fault_(injection.fault), device_(std::move(device)) {
  try {
    if (fault_ == InjectedFault::kPartition) {
      routes_ = routes_over(device_);
      keep_addresses(device_);
      run_command({"ip", "link", "set", "dev", device_, "down"});
      return;
    }
    Arguments arguments = {"tc", "qdisc", "add", "dev", device_, "root", "netem"};
    if (fault_ == InjectedFault::kDelay) {
      arguments.insert(arguments.end(), {"delay", concat(injection.delay.count(), "ms")});
    } else if (fault_ == InjectedFault::kLoss) {
      arguments.insert(arguments.end(), {"loss", decimal(100 * injection.loss) + "%"});
    } else {
      throw InternalError(concat(name_of(fault_), " is no fault of a network"));
    }
    run_command(arguments);
  } catch (const InternalError&) {
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
  if (std::exchange(has_ended_, true)) return;
  if (fault_ != InjectedFault::kPartition) {
    run_command({"tc", "qdisc", "del", "dev", device_, "root"});
    return;
  }
  run_command({"ip", "link", "set", "dev", device_, "up"});
  std::string first_error;
  for (const Arguments& route : routes_) {
    try {
      run_command(route);
    } catch (const Error& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  if (!first_error.empty()) throw Error(concat(device_, " is up without a route: ", first_error));
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
  if (::stat("/proc/self/ns/net", &own) != 0) return true;
  if (::stat("/proc/1/ns/net", &first) != 0) return false;  // another user's; no right to it either
  return own.st_ino == first.st_ino;
}

}  // namespace trireme::launch::inline internal
