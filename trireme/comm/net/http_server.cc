#include "trireme/comm/net/http_server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <string_view>
#include <utility>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/sha256.h"
#include "trireme/comm/net/tcp_socket.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{100};  // between two looks at has_to_stop
constexpr size_t kReadBytes = 64 << 10;

}  // namespace

bool is_loopback_host(const std::string& host) {
  std::string_view name = host;
  if (name.starts_with('[')) {
    const size_t end = name.find(']');
    if (end == name.npos) return false;
    const std::string_view rest = name.substr(end + 1);
    return name.substr(0, end + 1) == "[::1]" && (rest.empty() || rest.front() == ':');
  }
  name = name.substr(0, name.find(':'));
  return name == "127.0.0.1" || name == "localhost";
}

class HttpServer::Loop {
 public:
  Loop(HttpOptions options, std::vector<HttpRoute> routes)
      : options_(std::move(options)), routes_(std::move(routes)) {
    Endpoint endpoint;
    auto& address = reinterpret_cast<sockaddr_in&>(endpoint.address);
    address.sin_family = AF_INET;
    address.sin_port = htons(options_.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    endpoint.length = sizeof(address);
    try {
      listener_ = std::move(listen_on({endpoint}, {"127.0.0.1", options_.port}).front());
    } catch (const ConfigError&) {
      throw ConfigError(concat("port ", options_.port,
                               " of 127.0.0.1 is in use or not allowed; choose another, or 0 for a "
                               "free one"));
    }
    socklen_t length = sizeof(address);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }

  uint16_t port() const { return port_; }

  void run(const std::function<bool()>& has_to_stop) {
    while (!has_to_stop()) {
      wait();
      for (Connection& connection : connections_) {
        if (!connection.is_done) serve(connection);
      }
      std::erase_if(connections_, [](const Connection& connection) { return connection.is_done; });
    }
  }

 private:
  struct Connection {
    Descriptor socket;
    std::string received{};
    std::string to_send{};
    size_t num_sent = 0;
    bool is_ending = false;  // after what is to be sent
    bool has_continued = false;
    bool is_draining = false;  // its answer is sent; what it still sends is dropped until it closes
    bool has_more = false;     // bytes that came together with an earlier request
    bool is_done = false;
    Clock::time_point deadline{};  // of the request or the answer under way; none in between

    bool is_sending() const { return num_sent < to_send.size(); }
    bool is_between_requests() const { return !is_sending() && received.empty(); }
  };

  void wait() {
    const bool has_room = connections_.size() < options_.most_connections;
    std::vector<pollfd> watched = {{listener_.get(), static_cast<short>(has_room ? POLLIN : 0), 0}};
    for (const Connection& connection : connections_) {
      const short events = connection.is_sending() ? POLLOUT : POLLIN;
      watched.push_back({connection.socket.get(), events, 0});
    }
    // A request that came together with an earlier one is there already.
    const bool has_work = std::ranges::any_of(connections_, &Connection::has_more);
    if (::poll(watched.data(), watched.size(), has_work ? 0 : static_cast<int>(kLook.count())) < 0)
      return;
    if (watched.front().revents != 0) accept_all();
    if (!has_room) close_idle();
  }

  void accept_all() {
    while (connections_.size() < options_.most_connections) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.is_open()) return;
      connections_.push_back(
          {.socket = std::move(socket), .deadline = Clock::now() + options_.patience});
    }
  }

  // Others may wait for a place.
  void close_idle() {
    for (Connection& connection : connections_) {
      if (connection.is_between_requests()) connection.is_done = true;
    }
  }

  void serve(Connection& connection) {
    if (connection.is_sending()) {
      send_some(connection);
    } else {
      receive_some(connection);
      if (connection.is_draining) {
        connection.received.clear();
      } else if (!connection.is_done) {
        answer(connection);
      }
    }
    const bool is_late =
        connection.deadline != Clock::time_point() && Clock::now() > connection.deadline;
    if (!connection.is_done && is_late) connection.is_done = true;
  }

  void receive_some(Connection& connection) {
    const size_t most = options_.limits.head_bytes + options_.limits.body_bytes + kReadBytes;
    char bytes[kReadBytes];
    while (connection.received.size() < most) {
      const ssize_t count = ::recv(connection.socket.get(), bytes, sizeof(bytes), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) break;
      if (count <= 0) {
        connection.is_done = true;
        return;
      }
      if (connection.received.empty()) connection.deadline = Clock::now() + options_.patience;
      connection.received.append(bytes, static_cast<size_t>(count));
    }
  }

  // Answers what has arrived, a request at a time.
  void answer(Connection& connection) {
    connection.has_more = false;
    if (connection.received.empty()) return;
    HttpParse parse = parse_http(connection.received, options_.limits);
    if (parse.refusal) {
      connection.is_ending = true;
      return begin_send(connection, to_bytes(*parse.refusal, /*keeps_alive=*/false));
    }
    if (!parse.request) {
      if (parse.expects_continue && !std::exchange(connection.has_continued, true))
        begin_send(connection, "HTTP/1.1 100 Continue\r\n\r\n");
      return;
    }
    connection.received.erase(0, parse.num_bytes);
    connection.has_continued = false;
    const HttpRequest& request = *parse.request;
    connection.is_ending = !request.keeps_alive;
    const Clock::time_point begin = Clock::now();
    const HttpResponse response = answer_to(request);
    // The others have waited meanwhile.
    const auto took = Clock::now() - begin;
    for (Connection& each : connections_) {
      if (each.deadline != Clock::time_point()) each.deadline += took;
    }
    begin_send(connection, to_bytes(response, request.keeps_alive, request.method == "HEAD"));
  }

  HttpResponse answer_to(const HttpRequest& request) {
    if (!is_loopback_host(request.header("host")))
      return http_error(403, "the Host header is not of this host; ask for 127.0.0.1");
    if (!options_.token.empty() && !is_same_digest(sha256(request.header("authorization")),
                                                   sha256("Bearer " + options_.token))) {
      return http_error(401,
                        "the token is missing or wrong; send the header \"Authorization: "
                        "Bearer TOKEN\" with the one that the server has printed");
    }
    std::string allowed;
    for (const HttpRoute& route : routes_) {
      if (route.path != request.path) continue;
      const bool is_head = request.method == "HEAD" && route.method == "GET";
      if (route.method == request.method || is_head) return answer_by(route, request);
      allowed += (allowed.empty() ? "" : ", ") + route.method;
    }
    if (allowed.empty()) {
      std::string paths;
      for (const HttpRoute& route : routes_) paths += (paths.empty() ? "" : ", ") + route.path;
      return http_error(404, concat("there is no such path; expected one of ", paths));
    }
    HttpResponse response = http_error(405, concat("expected the method ", allowed));
    response.headers.emplace_back("Allow", allowed);
    return response;
  }

  static HttpResponse answer_by(const HttpRoute& route, const HttpRequest& request) {
    try {
      return route.answer(request);
    } catch (const InternalError&) {
      throw;
    } catch (const CommError&) {
      throw;
    } catch (const ConfigError& error) {
      return http_error(400, error.what());
    } catch (const std::exception& error) {
      return http_error(500, error.what());
    }
  }

  void begin_send(Connection& connection, std::string bytes) {
    connection.to_send = std::move(bytes);
    connection.num_sent = 0;
    connection.deadline = Clock::now() + options_.patience;
    send_some(connection);
  }

  void send_some(Connection& connection) {
    while (connection.is_sending()) {
      const std::string_view rest =
          std::string_view(connection.to_send).substr(connection.num_sent);
      const ssize_t count = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) {
        connection.is_done = true;
        return;
      }
      connection.num_sent += static_cast<size_t>(count);
      connection.deadline = Clock::now() + options_.patience;
    }
    if (connection.is_ending) {
      // Closed with bytes unread, the peer would lose the answer.
      ::shutdown(connection.socket.get(), SHUT_WR);
      connection.is_draining = true;
    } else if (connection.received.empty()) {
      connection.deadline = {};
    } else {
      connection.has_more = true;
    }
  }

  const HttpOptions options_;
  const std::vector<HttpRoute> routes_;
  Descriptor listener_;
  uint16_t port_ = 0;
  std::list<Connection> connections_;
};

HttpServer::HttpServer(HttpOptions options, std::vector<HttpRoute> routes)
    : loop_(std::make_unique<Loop>(std::move(options), std::move(routes))) {}
HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return loop_->port(); }
void HttpServer::run(const std::function<bool()>& has_to_stop) { loop_->run(has_to_stop); }

}  // namespace trireme::comm
