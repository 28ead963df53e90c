#include "trireme/comm/c10d/network_interface.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::comm {
namespace {

std::string numeric(const sockaddr* address) {
  const bool is_v6 = address->sa_family == AF_INET6;
  char text[NI_MAXHOST] = "";
  getnameinfo(address, is_v6 ? 28 : 16, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

// All addresses of all interfaces that are up, IPv4 first.
std::vector<NetworkInterface> list_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw Error(concat("getifaddrs: ", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<NetworkInterface> found;
  // A name leads to its first address here, and link-local IPv6 ones are reached only with a scope.
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* item = first; item != nullptr; item = item->ifa_next) {
      if (item->ifa_addr == nullptr || item->ifa_addr->sa_family != family) continue;
      if ((item->ifa_flags & IFF_UP) == 0) continue;
      found.push_back(
          {item->ifa_name, numeric(item->ifa_addr), (item->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

// The source address of packets to `target`; empty when there is no route.
std::string address_towards(const addrinfo& target) {
  const Descriptor probe(socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.is_open()) return "";
  sockaddr_storage mine{};
  socklen_t length = sizeof(mine);
  // Connecting a datagram socket only asks the routing table.
  const bool has_route = connect(probe.get(), target.ai_addr, target.ai_addrlen) == 0 &&
                         getsockname(probe.get(), reinterpret_cast<sockaddr*>(&mine), &length) == 0;
  return has_route ? numeric(reinterpret_cast<const sockaddr*>(&mine)) : "";
}

}  // namespace

std::string to_string(const NetworkInterface& interface) {
  return concat(interface.name, " (", interface.address, ")");
}

NetworkInterface find_interface_to(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  // Any port does, for nothing is sent.
  const int error = getaddrinfo(host.c_str(), "9", &hints, &first);
  TRIREME_CHECK(error == 0, "address \"", host, "\" does not resolve (", gai_strerror(error),
                "); expected the name or address of the host of rank 0");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, freeaddrinfo);
  const auto interfaces = list_interfaces();
  for (const addrinfo* target = first; target != nullptr; target = target->ai_next) {
    const std::string mine = address_towards(*target);
    for (const NetworkInterface& interface : interfaces) {
      if (interface.address == mine) return interface;
    }
    // All of 127/8 is this host, though only 127.0.0.1 is listed.
    if (mine.starts_with("127.")) return {"lo", mine, true};
  }
  throw ConfigError(concat("no network interface has a route to ", host,
                           "; expected one, or GLOO_SOCKET_IFNAME naming the interface to use"));
}

NetworkInterface find_loopback() {
  for (const NetworkInterface& interface : list_interfaces()) {
    if (interface.is_loopback) return interface;
  }
  throw ConfigError(
      "this host has no loopback interface that is up, over which its ranks meet; expected lo, "
      "which `ip link set lo up` starts, or GLOO_SOCKET_IFNAME naming another interface");
}

NetworkInterface find_interface(const std::string& name) {
  std::string known;
  for (const NetworkInterface& interface : list_interfaces()) {
    if (interface.name == name) return interface;
    if (known.find(interface.name) == std::string::npos) known += " " + interface.name;
  }
  throw ConfigError(concat("GLOO_SOCKET_IFNAME is \"", name,
                           "\", which is not an interface of this host that is up; expected one of",
                           known));
}

}  // namespace trireme::comm
