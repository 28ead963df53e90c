#include "trireme/comm/net/http_server.h"

#include <algorithm>
#include <cerrno>
#include <list>
#include <string_view>
#include <utility>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/sha256.h"
#include "trireme/comm/net/http_connection.h"
#include "trireme/comm/net/tcp_socket.h"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kLook{100};  // between two looks at has_to_stop
constexpr std::chrono::milliseconds kStandstill{500};

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
  using Clock = std::chrono::steady_clock;

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
    HttpConnection::Server server{
        .answer = [this](const HttpRequest& request) { return with_headers(answer_to(request)); },
        .refuse =
            [this](const HttpRequest& request) {
              auto refusal = refusal_of(request);
              return refusal ? std::optional(with_headers(*std::move(refusal))) : std::nullopt;
            }};
    while (!has_to_stop()) {
      wait();
      for (HttpConnection& connection : connections_) {
        if (!connection.is_done()) connection.serve(server);
      }
      std::erase_if(connections_, [](const HttpConnection& each) { return each.is_done(); });
    }
    connections_.clear();
  }

 private:
  void wait() {
    const bool has_room = connections_.size() < options_.most_connections;
    const bool has_idle = std::ranges::any_of(connections_, makes_room);
    const bool accepts = (has_room || has_idle) && Clock::now() >= accepts_from_;
    std::vector<pollfd> watched = {{listener_.get(), static_cast<short>(accepts ? POLLIN : 0), 0}};
    for (const HttpConnection& connection : connections_)
      watched.push_back({connection.fd(), connection.events(), 0});
    const bool has_work = std::ranges::any_of(connections_, &HttpConnection::has_work);
    if (::poll(watched.data(), watched.size(), has_work ? 0 : static_cast<int>(kLook.count())) < 0)
      return;
    size_t index = 0;
    for (HttpConnection& connection : connections_) {
      const short events = watched[++index].revents;
      if ((events & (POLLRDHUP | POLLHUP | POLLERR)) != 0) connection.note_hang_up();
      if ((events & POLLIN) != 0) connection.note_bytes();
    }
    if (watched.front().revents == 0) return;
    if (!has_room) close_idle();
    accept_all();
  }

  void accept_all() {
    while (connections_.size() < options_.most_connections) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.is_open()) return note_failed_accept(errno);
      connections_.emplace_back(
          std::move(socket),
          HttpConnection::Options{.limits = options_.limits, .patience = options_.patience});
    }
  }

  // Without descriptors or memory the connection stays in the kernel's queue. The next round takes
  // it if another one made room; else poll() would return at once for ever.
  void note_failed_accept(int error) {
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return;
    if (!close_idle()) accepts_from_ = Clock::now() + kLook;
  }

  // For another one that waits: a request that stands still is not worth its place.
  static bool makes_room(const HttpConnection& connection) {
    return connection.is_between_requests() || connection.is_silent(kStandstill);
  }

  bool close_idle() {
    const auto idle = std::ranges::find_if(connections_, makes_room);
    if (idle == connections_.end()) return false;
    connections_.erase(idle);
    return true;
  }

  HttpResponse with_headers(HttpResponse response) const {
    response.headers.insert(response.headers.end(), options_.headers.begin(),
                            options_.headers.end());
    return response;
  }

  // Nothing for a request that may come in.
  std::optional<HttpResponse> refusal_of(const HttpRequest& request) const {
    if (!is_loopback_host(request.header("host")))
      return http_error(403, "the Host header is not of this host; ask for 127.0.0.1");
    if (options_.admit) return options_.admit(request);
    const bool is_known =
        options_.token.empty() ||
        is_same_digest(sha256(request.header("authorization")), sha256("Bearer " + options_.token));
    if (is_known) return std::nullopt;
    return http_error(401,
                      "the token is missing or wrong; send the header \"Authorization: "
                      "Bearer TOKEN\" with the one that the server has printed");
  }

  HttpResponse answer_to(const HttpRequest& request) {
    if (auto refusal = refusal_of(request)) return *std::move(refusal);
    std::string allowed;
    for (const HttpRoute& route : routes_) {
      if (route.path != request.path) continue;
      const bool is_head = request.method == "HEAD" && route.method == "GET";
      if (route.method == request.method || is_head)
        return answer_or_error([&] { return route.answer(request); });
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

  const HttpOptions options_;
  const std::vector<HttpRoute> routes_;
  Descriptor listener_;
  uint16_t port_ = 0;
  std::list<HttpConnection> connections_;
  Clock::time_point accepts_from_{};
};

HttpServer::HttpServer(HttpOptions options, std::vector<HttpRoute> routes)
    : loop_(std::make_unique<Loop>(std::move(options), std::move(routes))) {}
HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return loop_->port(); }
void HttpServer::run(const std::function<bool()>& has_to_stop) { loop_->run(has_to_stop); }

}  // namespace trireme::comm
