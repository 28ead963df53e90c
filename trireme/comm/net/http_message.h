// Requests and responses of HTTP/1.1, as the server of http_server.h takes and gives them. Pure
// functions. A request comes from a stranger: every size is checked before use.
// Source: RFC 9110, RFC 9112
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::comm {

struct HttpLimits {
  size_t head_bytes = 8 << 10;  // request line and headers
  size_t body_bytes = 1 << 20;
};

struct HttpRequest {
  std::string method;
  std::string path;                              // as sent, up to the question mark
  std::map<std::string, std::string> query{};    // decoded; of a repeated name the last value
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};
  bool keeps_alive = true;

  // "": there is none
  std::string header(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // further ones
};

// What the bytes that a connection has received begin with.
struct HttpParse {
  std::optional<HttpRequest> request{};   // a whole one
  std::optional<HttpResponse> refusal{};  // the connection ends after it
  size_t num_bytes = 0;                   // of the request
  bool expects_continue = false;          // its body comes after "100 Continue"
};
// Nothing in the result: more bytes have to come.
HttpParse parse_http(std::string_view received, const HttpLimits& limits = {});

// An error in the form of OpenAI's API: {"error": {"message": ...}}.
HttpResponse http_error(int status, std::string_view message);

// without_body: an answer to HEAD
std::string to_bytes(const HttpResponse& response, bool keeps_alive, bool without_body = false);

}  // namespace trireme::comm
