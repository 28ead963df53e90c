// Requests and responses of HTTP/1.1, as the server of http_server.h takes and gives them. Pure
// functions. A request comes from a stranger: every size is checked before use.
// Source: RFC 9110, RFC 9112
#pragma once

#include <cstddef>
#include <map>
#include <memory>
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
  bool takes_chunks = true;  // HTTP/1.1
  // The query in its order, with names that are repeated.
  std::vector<std::pair<std::string, std::string>> parameters{};

  // "": there is none
  std::string header(const std::string& name) const;
  // Of the header Cookie. "": there is none
  // Source: RFC 6265, section 4.2
  std::string cookie(std::string_view name) const;
};

struct HttpPiece {
  enum class Then { kMore, kLater, kEnd };

  std::string bytes{};  // may be none
  // What follows: the next piece, at once or after a moment, or the end of the body.
  Then then = Then::kMore;
};

// The body of an answer that is made while it is sent.
class HttpPieces {
 public:
  // Comes after the last piece, or as soon as the client has gone. Does not throw.
  virtual ~HttpPieces() = default;
  // Called only while the client has room. All connections wait meanwhile, and what a client has
  // not taken is kept: a piece is made in a moment, and small.
  virtual HttpPiece next() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // further ones
  // Instead of `body`, which then is empty.
  std::shared_ptr<HttpPieces> pieces{};
  // The pieces are collected and sent together with their length, so that an error among them can
  // still be the answer.
  bool is_sent_whole = false;
};

// What the bytes that a connection has received begin with.
struct HttpParse {
  std::optional<HttpRequest> request{};   // a whole one
  std::optional<HttpRequest> head{};      // one whose body has not arrived
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

// The head of an answer whose pieces follow: as chunks, or plain until the connection ends.
std::string to_head(const HttpResponse& response, bool keeps_alive, bool is_chunked);
// A piece, which is not empty, as a chunk.
std::string to_chunk(std::string_view piece);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace trireme::comm
