// A small HTTP server for tools on this host: it listens on the loopback interface only and asks
// for a token. One thread serves all connections. It runs a handler at a time; answers that are
// made in pieces (HttpPieces) take turns, a piece of each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/net/http_message.h"

namespace trireme::comm {

// Answers a request, whole or in pieces. Whatever it throws becomes an answer: of a ConfigError
// with status 400, of any other exception with 500; InternalError and CommError end the server.
using HttpHandler = std::function<HttpResponse(const HttpRequest& request)>;

struct HttpRoute {
  std::string method;  // GET answers HEAD too
  std::string path;
  HttpHandler answer;
};

struct HttpOptions {
  uint16_t port = 0;  // 0: a free one
  // What a request must have as "Authorization: Bearer TOKEN". Empty: nothing.
  std::string token{};
  // In place of the token: nothing for a request that may come in, else its answer. The Host header
  // was checked before.
  std::function<std::optional<HttpResponse>(const HttpRequest& request)> admit{};
  // These come with every answer to a whole request, refusals included.
  std::vector<std::pair<std::string, std::string>> headers{};
  HttpLimits limits{};
  size_t most_connections = 64;  // more wait until one ends
  // How long a request may take to arrive, and how long a client may take nothing of an answer.
  // Connections between two requests are closed when others wait, as are requests of which nothing
  // has come for half a second. A client that closes its side
  // while pieces are made for it has gone.
  std::chrono::milliseconds patience{5000};
};

class HttpServer {
 public:
  // Throws: ConfigError when the port is in use or not allowed
  HttpServer(HttpOptions options, std::vector<HttpRoute> routes);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Serves until `has_to_stop`, which is asked several times a second.
  void run(const std::function<bool()>& has_to_stop);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

// Whether a Host header names the loopback interface. A page of another site that has its own name
// lead here has that name in it (DNS rebinding).
bool is_loopback_host(const std::string& host);

}  // namespace trireme::comm
