#include "trireme/comm/net/tcp_socket.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

// How long to retry when the name service fails.
constexpr std::chrono::seconds kResolvePatience{2};
// Limit per address, so that one that drops packets does not block the name's other addresses.
constexpr std::chrono::seconds kConnectPatience{5};

// Waits until `fd` is ready for `events`, has failed, or `deadline` has passed.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    // Rounded up, or the last millisecond would be spent in a busy loop.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, events, 0};
    const int count = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (left <= 0) return false;
  }
}

Descriptor new_socket(const Endpoint& endpoint) {
  return Descriptor(
      socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
}

void set_option(const Descriptor& socket, int level, int name) {
  const int on = 1;
  setsockopt(socket.get(), level, name, &on, sizeof(on));
}

const sockaddr* address_of(const Endpoint& endpoint) {
  return reinterpret_cast<const sockaddr*>(&endpoint.address);
}

// errno, or 0 when connected.
int try_connect(const Descriptor& socket, const Endpoint& endpoint, Clock::time_point deadline) {
  if (connect(socket.get(), address_of(endpoint), endpoint.length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket.get(), POLLOUT, deadline)) return ETIMEDOUT;
  int code = 0;
  // Writable means decided, not connected.
  socklen_t length = sizeof(code);
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &length) == 0 ? code : errno;
}

}  // namespace

TcpAddress parse_tcp_address(const std::string& text) {
  constexpr std::string_view kScheme = "tcp://";
  const size_t colon = text.rfind(':');
  int port = 0;
  const char* const end = text.data() + text.size();
  bool is_valid = text.starts_with(kScheme) && colon > kScheme.size();
  if (is_valid) {
    const auto [last, error] = std::from_chars(text.data() + colon + 1, end, port);
    is_valid = error == std::errc() && last == end && port >= 1 && port <= 65535;
  }
  TRIREME_CHECK(is_valid, "the store is \"", text,
                "\"; expected tcp://HOST:PORT with a port from 1 to 65535");
  std::string host = text.substr(kScheme.size(), colon - kScheme.size());
  // An IPv6 address stands in brackets.
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, static_cast<uint16_t>(port)};
}

bool Endpoint::is_loopback() const {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return v6.sin6_addr.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

bool Endpoint::operator==(const Endpoint& other) const {
  return length == other.length && std::memcmp(&address, &other.address, length) == 0;
}

std::string Endpoint::to_string() const {
  char text[NI_MAXHOST] = "an unknown address";
  getnameinfo(address_of(*this), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::vector<Endpoint> resolve(const TcpAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const std::string port = std::to_string(address.port);
  const Clock::time_point deadline = Clock::now() + kResolvePatience;
  int error = 0;
  while ((error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &first)) == EAI_AGAIN &&
         Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  TRIREME_CHECK(error == 0, "\"", address.host, "\" does not resolve (", gai_strerror(error),
                "); expected the name or address of the host of rank 0 (MASTER_ADDR, or "
                "--rdzv-endpoint)");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.address, each->ai_addr, each->ai_addrlen);
    endpoint.length = each->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  TRIREME_CHECK(!endpoints.empty(), "\"", address.host,
                "\" stands for no address; expected that of the host of rank 0");
  return endpoints;
}

std::vector<Descriptor> listen_on(const std::vector<Endpoint>& endpoints,
                                  const TcpAddress& address) {
  std::vector<Descriptor> sockets;
  int problem = EADDRNOTAVAIL;
  for (auto each = endpoints.begin(); each != endpoints.end(); ++each) {
    const Endpoint& endpoint = *each;
    // A name may have an address twice, for example in two lines of /etc/hosts.
    if (std::find(endpoints.begin(), each, endpoint) != each) continue;
    Descriptor socket = new_socket(endpoint);
    if (!socket.is_open()) continue;  // this host lacks the address family
    // A job may start right after another. Two live jobs never share a port.
    set_option(socket, SOL_SOCKET, SO_REUSEADDR);
    // Otherwise it would also take the IPv4 port, which has a socket of its own.
    if (endpoint.address.ss_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY);
    if (bind(socket.get(), address_of(endpoint), endpoint.length) == 0 &&
        listen(socket.get(), SOMAXCONN) == 0) {
      sockets.push_back(std::move(socket));
    } else if (errno != EADDRNOTAVAIL) {
      problem = errno;
    }
    if (problem != EADDRNOTAVAIL) break;
  }
  TRIREME_CHECK(problem != EADDRINUSE, "port ", address.port,
                " of this host is in use; set MASTER_PORT to a free one on all ranks");
  TRIREME_CHECK(problem != EACCES, "port ", address.port,
                " may not be listened on by this user; set MASTER_PORT to one from 1024 on");
  TRIREME_CHECK(problem == EADDRNOTAVAIL, "rank 0 cannot listen on ", address.host, ":",
                address.port, ": ", std::strerror(problem));
  TRIREME_CHECK(
      !sockets.empty(), "\"", address.host,
      "\" is not an address of this host, where rank 0 serves the store; set MASTER_ADDR to "
      "one on all ranks, or TRIREME_LISTEN where an address is only forwarded here");
  return sockets;
}

Descriptor connect_to(const std::vector<Endpoint>& endpoints, Clock::time_point deadline,
                      std::string& problem) {
  for (const Endpoint& endpoint : endpoints) {
    Descriptor socket = new_socket(endpoint);
    const auto limit = std::min(deadline, Clock::now() + kConnectPatience);
    const int code = !socket.is_open() ? errno : try_connect(socket, endpoint, limit);
    if (code == 0) {
      // Requests are small, and each waits for its answer.
      set_option(socket, IPPROTO_TCP, TCP_NODELAY);
      // A host that vanishes says nothing.
      set_option(socket, SOL_SOCKET, SO_KEEPALIVE);
      return socket;
    }
    problem = std::strerror(code);
  }
  return Descriptor();
}

bool send_all(int fd, const void* data, size_t num_bytes, Clock::time_point deadline) {
  const auto* cursor = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t sent = send(fd, cursor, num_bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno != EAGAIN || !wait_for(fd, POLLOUT, deadline))) return false;
    if (sent > 0) cursor += sent;
    if (sent > 0) num_bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool recv_all(int fd, void* data, size_t num_bytes, Clock::time_point deadline) {
  auto* cursor = static_cast<char*>(data);
  while (num_bytes > 0) {
    const ssize_t got = recv(fd, cursor, num_bytes, 0);
    // At the end of the stream recv() sets no errno, and callers look at it.
    if (got == 0) errno = ECONNRESET;
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno != EAGAIN || !wait_for(fd, POLLIN, deadline))) return false;
    if (got > 0) cursor += got;
    if (got > 0) num_bytes -= static_cast<size_t>(got);
  }
  return true;
}

namespace {

// Strangers choose what they are refused for, so the table has a bound.
constexpr size_t kMaxKinds = 64;

bool is_power_of_ten(uint64_t count) {
  // Refusals are told at 1, 10, 100, ...: a port scan must not fill the log.
  while (count % 10 == 0 && count > 0) count /= 10;
  return count == 1;
}

}  // namespace

void Refusals::add(const std::string& address, const std::string& reason) {
  uint64_t count;
  std::pair<std::string, std::string> kind(address, reason);
  {
    const std::lock_guard lock(mutex_);
    const bool is_known = counts_.contains(kind);
    if (!is_known && counts_.size() >= kMaxKinds) kind = {"other addresses", "various reasons"};
    count = ++counts_[kind];
  }
  // Without the lock, as the listener is the caller's.
  if (!listener_ || !is_power_of_ten(count)) return;
  listener_(count == 1
                ? concat("refused a connection from ", kind.first, ": ", kind.second)
                : concat("refused ", count, " connections from ", kind.first, ": ", kind.second));
}

std::string Refusals::to_string() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  std::string list;
  size_t listed = 0;
  for (const auto& [kind, count] : counts_) {
    total += count;
    if (++listed > 5) continue;
    list += concat(listed == 1 ? "" : ", ", count, " from ", kind.first, " (", kind.second, ")");
  }
  if (total == 0) return "";
  return concat(total, total == 1 ? " connection was" : " connections were", " refused: ", list,
                listed > 5 ? concat(" and ", listed - 5, " more") : "");
}

}  // namespace trireme::comm
