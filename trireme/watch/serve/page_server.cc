#include "trireme/watch/serve/page_server.h"

#include <chrono>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/sha256.h"
#include "trireme/watch/serve/answers.h"
#include "trireme/watch/serve/assets.h"
#include "trireme/watch/serve/file_answers.h"
#include "trireme/watch/serve/prometheus.h"

namespace trireme::watch {
namespace {

using comm::HttpRequest;
using comm::HttpResponse;

// Between two requests, so that an answer never waits long.
constexpr std::chrono::milliseconds kReadSlice{20};

HttpResponse json_error(int status, std::string_view message) {
  return {.status = status, .body = to_line({{"error", message}}) + "\n"};
}

// What the page shows when a request cannot be answered.
HttpResponse json_or_error(const std::function<HttpResponse()>& make) {
  try {
    return make();
  } catch (const ConfigError& error) {
    return json_error(400, error.what());
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    return json_error(500, error.what());
  }
}

bool is_same_text(const std::string& given, const std::string& wanted) {
  return is_same_digest(sha256(given), sha256(wanted));
}

}  // namespace

PageServer::PageServer(RunList& runs, uint16_t port, std::string token)
    : runs_(runs), token_(std::move(token)) {
  server_ = std::make_unique<comm::HttpServer>(
      comm::HttpOptions{.port = port,
                        .admit = [this](const HttpRequest& request) { return admit(request); },
                        .headers = {{"Content-Security-Policy", kPagePolicy},
                                    {"Referrer-Policy", "no-referrer"},
                                    {"Cross-Origin-Resource-Policy", "same-origin"},
                                    {"Cache-Control", "no-store"}},
                        .limits = {.body_bytes = 0}},
      routes());
}
PageServer::~PageServer() = default;

uint16_t PageServer::port() const { return server_->port(); }

std::string PageServer::url() const {
  return concat("http://127.0.0.1:", port(), "/?token=", token_);
}

// Cookies belong to a host, not to a port: two pages on one host need two names.
std::string PageServer::cookie_name() const { return concat("trireme_watch_", port()); }

std::optional<HttpResponse> PageServer::admit(const HttpRequest& request) const {
  const auto given = request.query.find("token");
  if (request.path == "/" && given != request.query.end() && is_same_text(given->second, token_)) {
    // The token leaves the address, and with it the browser's history and what people copy.
    return HttpResponse{.status = 303,
                        .type = "text/plain; charset=utf-8",
                        .body = "the page is at /\n",
                        .headers = {{"Location", "/"},
                                    {"Set-Cookie", concat(cookie_name(), "=", token_,
                                                          "; Path=/; HttpOnly; SameSite=Strict")}}};
  }
  const bool has_cookie = is_same_text(request.cookie(cookie_name()), token_);
  const bool has_bearer = is_same_text(request.header("authorization"), "Bearer " + token_);
  if (has_cookie || has_bearer) return std::nullopt;
  return json_error(401,
                    "the token is missing or wrong; open the address that `trireme watch` has "
                    "printed, or send the header \"Authorization: Bearer TOKEN\"");
}

std::vector<comm::HttpRoute> PageServer::routes() {
  std::vector<comm::HttpRoute> routes;
  for (const Asset& asset : assets()) {
    const auto serve = [&asset](const HttpRequest&) {
      return HttpResponse{.type = std::string(type_of_asset(asset.name)),
                          .body = std::string(asset.content)};
    };
    routes.push_back({"GET", concat("/", asset.name), serve});
    if (asset.name == "index.html") routes.push_back({"GET", "/", serve});
  }
  for (const std::string& path : answer_paths()) {
    routes.push_back({"GET", path, [this, path](const HttpRequest& request) {
                        return json_or_error([&] {
                          return HttpResponse{
                              .body = to_line(answer(runs_, path, request.parameters)) + "\n"};
                        });
                      }});
  }
  routes.push_back({"GET", "/api/trace", [this](const HttpRequest& request) {
                      return json_or_error([&] { return trace_answer(runs_, request.parameters); });
                    }});
  routes.push_back({"GET", "/metrics", [this](const HttpRequest&) {
                      return HttpResponse{.type = kPrometheusType, .body = prometheus_text(runs_)};
                    }});
  return routes;
}

void PageServer::run(const std::function<bool()>& has_to_stop) {
  server_->run([&] {
    runs_.update(kReadSlice);
    return has_to_stop();
  });
}

}  // namespace trireme::watch
