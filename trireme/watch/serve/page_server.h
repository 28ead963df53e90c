// Serves the page and its interface on this host's loopback interface, to those who know the token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/net/http_server.h"
#include "trireme/watch/run/run_list.h"

namespace trireme::watch {

// What a browser may do with the page: load its own scripts, styles and numbers, and nothing else.
inline constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// Not thread safe.
class PageServer {
 public:
  // token: what requests must have, as the parameter ?token= of "/" (which moves it to a cookie),
  // as that cookie, or as "Authorization: Bearer TOKEN". runs: must outlive the server
  // Throws: ConfigError when the port is in use or not allowed
  PageServer(RunList& runs, uint16_t port, std::string token);
  ~PageServer();

  uint16_t port() const;
  // "http://127.0.0.1:7117/?token=..."
  std::string url() const;
  // Serves until `has_to_stop`, and reads what is new of the runs.
  void run(const std::function<bool()>& has_to_stop);

 private:
  std::optional<comm::HttpResponse> admit(const comm::HttpRequest& request) const;
  std::vector<comm::HttpRoute> routes();
  std::string cookie_name() const;

  RunList& runs_;
  std::string token_;
  std::unique_ptr<comm::HttpServer> server_;
};

}  // namespace trireme::watch
