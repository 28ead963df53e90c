#include "trireme/launch/agent/link_probe.h"

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <arpa/inet.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/c10d/network_interface.h"
#include "trireme/comm/net/tcp_socket.h"

namespace trireme::launch {

// A probe may wait for two seconds per host, and a job has thousands of hosts. A bounded number of
// threads therefore takes hosts from a common list. The threads are detached and own their state by
// a shared pointer: a newer question simply leaves the older state to them, and the agent can end
// while a connection still hangs. An answer is published once, when the last host is done. A
// partial one would make hosts look reachable that nobody has tried yet.

namespace {

// Bounds the threads of a job with thousands of hosts.
constexpr size_t kMostThreads = 32;

int port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  // The port is at the same place in both.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Why the host cannot be reached; "" when it can.
std::string problem_of(const LinkedHost& host, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  try {
    std::string problem;
    const auto endpoints = comm::resolve({host.address, static_cast<uint16_t>(host.port)});
    if (comm::connect_to(endpoints, deadline, problem).is_open()) return {};
    const bool is_late = std::chrono::steady_clock::now() >= deadline;
    return is_late ? concat("no answer within ", in_seconds(patience), " s") : problem;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

struct LinkProbe::State {
  std::mutex mutex;
  std::vector<LinkedHost> waiting;
  size_t num_open = 0;  // hosts that have not been looked at to the end
  Answer next;          // of the question under way
  Answer answer;
};

LinkProbe::LinkProbe(std::string address, std::chrono::milliseconds patience)
    : address_(std::move(address)), patience_(patience) {
  try {
    const comm::TcpAddress here{address_, 0};
    listeners_ = comm::listen_on(comm::resolve(here), here);
    port_ = port_of(listeners_.front());
  } catch (const Error&) {
    // This host does not take part in probes.
  }
}

void LinkProbe::answer(const Plan& plan, const std::string& id) {
  std::vector<LinkedHost> hosts = plan.linked;
  const bool is_asked = std::erase_if(hosts, [&](const auto& host) { return host.id == id; }) > 0;
  if (!is_asked || plan.links_asked <= number_) return;
  number_ = plan.links_asked;
  const auto state = std::make_shared<State>();
  // Until the new question is answered, the last answer stays the newest.
  if (state_) state->answer = poll();
  state->waiting = hosts;
  state->num_open = hosts.size();
  state->next.number = number_;
  if (hosts.empty()) state->answer = state->next;
  state_ = state;
  const auto work = [state, patience = patience_] {
    std::unique_lock lock(state->mutex);
    while (!state->waiting.empty()) {
      const LinkedHost host = state->waiting.back();
      state->waiting.pop_back();
      lock.unlock();
      std::string problem = problem_of(host, patience);
      lock.lock();
      // Only failures are kept: an answer is part of each report and must stay small.
      if (!problem.empty()) state->next.unreached.push_back({host.id, std::move(problem)});
      if (--state->num_open == 0) state->answer = state->next;
    }
  };
  for (size_t i = 0; i < std::min(hosts.size(), kMostThreads); ++i) {
    try {
      std::thread(work).detach();
    } catch (const std::system_error&) {  // no more threads: the others do this one's part
      if (i == 0) state_.reset();         // or nobody answers
      return;
    }
  }
}

LinkProbe probe_between_ranks(const Environment& environment, const Line& line) {
  const auto interface = environment.find("GLOO_SOCKET_IFNAME");
  const bool is_named = interface != environment.end() && !interface->second.empty();
  try {
    return LinkProbe(is_named ? comm::find_interface(interface->second).address
                              : line.own_address());
  } catch (const ConfigError&) {  // the ranks will say so
    return {};
  }
}

LinkProbe::Answer LinkProbe::poll() {
  for (const Descriptor& listener : listeners_) {
    // Nobody reads from them. The connection itself is the answer, and an overflowing queue of the
    // kernel would look like a dead link to those who probe.
    while (Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)).is_open()) continue;
  }
  if (!state_) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->answer;
}

}  // namespace trireme::launch
