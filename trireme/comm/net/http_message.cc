#include "trireme/comm/net/http_message.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr size_t kMostHeaders = 64;

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOthers.find(c) != kOthers.npos;
  });
}

// Printable ASCII, tabs, and bytes above.
bool is_field_text(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= ' ' && byte != 0x7f);
  });
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view without_spaces(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// %41 -> A, + -> space. Nothing when it is damaged.
std::optional<std::string> decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    uint8_t byte = 0;
    const char* const end = text.data() + i + 3;
    const auto [last, error] = std::from_chars(text.data() + i + 1, end, byte, 16);
    if (error != std::errc() || last != end) return std::nullopt;
    result += static_cast<char>(byte);
    i += 2;
  }
  return result;
}

HttpParse refuse(int status, std::string_view message) {
  return {.refusal = http_error(status, message)};
}

// "GET /path?name=value HTTP/1.1". Returns what is wrong, or "".
std::string_view read_request_line(std::string_view line, HttpRequest& request) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == line.npos || first == last) return "the request line has no three words";
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return "expected HTTP/1.1";
  request.keeps_alive = request.takes_chunks = version == "HTTP/1.1";
  request.method = line.substr(0, first);
  if (!is_token(request.method)) return "the method is not a word";
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const bool is_printable = std::ranges::all_of(target, [](char c) { return c > ' ' && c < 0x7f; });
  if (!target.starts_with('/') || !is_printable) return "expected a path that begins with a slash";
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  for (std::string_view rest = mark == target.npos ? "" : target.substr(mark + 1); !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    const size_t equals = pair.find('=');
    const auto name = decoded(pair.substr(0, equals));
    const auto value = decoded(equals == pair.npos ? "" : pair.substr(equals + 1));
    if (!name || !value) return "the query is damaged";
    request.query[*name] = *value;
    request.parameters.emplace_back(*name, *value);
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
  }
  return "";
}

// Returns what is wrong, or "". A header that decides where a message ends may come once only: two
// readers could choose differently.
std::string_view read_header(std::string_view line, HttpRequest& request) {
  const size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) return "a header has no name";
  const std::string_view value = without_spaces(line.substr(colon + 1));
  if (!is_field_text(value)) return "a header has a control character";
  static const std::set<std::string_view> kOnce = {"content-length", "transfer-encoding", "host",
                                                   "authorization"};
  const std::string name = lower(line.substr(0, colon));
  const auto [place, is_new] = request.headers.emplace(name, value);
  if (!is_new && kOnce.contains(name)) return "a header is repeated that may come once";
  return "";
}

}  // namespace

std::string HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string HttpRequest::cookie(std::string_view name) const {
  const std::string all = header("cookie");
  for (std::string_view rest = all; !rest.empty();) {
    const std::string_view whole = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), whole.size() + 1));
    const std::string_view pair = without_spaces(whole);
    const size_t equals = pair.find('=');
    if (equals != pair.npos && pair.substr(0, equals) == name)
      return std::string(pair.substr(equals + 1));
  }
  return "";
}

HttpParse parse_http(std::string_view received, const HttpLimits& limits) {
  const size_t head_end = received.substr(0, limits.head_bytes + kHeadEnd.size()).find(kHeadEnd);
  if (head_end == received.npos) {
    if (received.size() < limits.head_bytes + kHeadEnd.size()) return {};
    return refuse(431, concat("the headers exceed ", limits.head_bytes, " bytes"));
  }
  HttpRequest request;
  std::string_view rest = received.substr(0, head_end);
  const size_t line_end = rest.find("\r\n");
  if (const auto problem = read_request_line(rest.substr(0, line_end), request); !problem.empty())
    return refuse(400, problem);
  rest.remove_prefix(line_end == rest.npos ? rest.size() : line_end + 2);
  for (size_t count = 0; !rest.empty(); ++count) {
    if (count == kMostHeaders) return refuse(431, concat("more than ", kMostHeaders, " headers"));
    const std::string_view line = rest.substr(0, rest.find("\r\n"));
    if (const auto problem = read_header(line, request); !problem.empty())
      return refuse(400, problem);
    rest.remove_prefix(std::min(rest.size(), line.size() + 2));
  }
  if (request.headers.contains("transfer-encoding"))
    return refuse(501, "a body in chunks is not read; send Content-Length");
  size_t length = 0;
  if (const std::string text = request.header("content-length"); !text.empty()) {
    const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    if (last != text.data() + text.size() || error == std::errc::invalid_argument)
      return refuse(400, "Content-Length is not a number");
    if (error != std::errc() || length > limits.body_bytes)
      return refuse(413, concat("the body exceeds ", limits.body_bytes, " bytes"));
  }
  const std::string connection = lower(request.header("connection"));
  if (connection == "close") request.keeps_alive = false;
  const size_t begin = head_end + kHeadEnd.size();
  if (received.size() < begin + length) {
    const bool waits =
        received.size() == begin && lower(request.header("expect")) == "100-continue";
    return {.head = std::move(request), .expects_continue = waits};
  }
  request.body = received.substr(begin, length);
  return {.request = std::move(request), .num_bytes = begin + length};
}

HttpResponse http_error(int status, std::string_view message) {
  const nlohmann::json body = {{"error", {{"message", message}, {"code", status}}}};
  return {.status = status,
          .body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 303: return "See Other";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Status";
  }
}

// `framing` is the header that says where the body ends, or "".
std::string head_of(const HttpResponse& response, bool keeps_alive, const std::string& framing) {
  std::string bytes = concat("HTTP/1.1 ", response.status, " ", reason_of(response.status),
                             "\r\nContent-Type: ", response.type, "\r\n", framing,
                             "X-Content-Type-Options: nosniff\r\nConnection: ",
                             keeps_alive ? "keep-alive" : "close", "\r\n");
  for (const auto& [name, value] : response.headers) bytes += concat(name, ": ", value, "\r\n");
  return bytes + "\r\n";
}

}  // namespace

std::string to_bytes(const HttpResponse& response, bool keeps_alive, bool without_body) {
  std::string bytes =
      head_of(response, keeps_alive, concat("Content-Length: ", response.body.size(), "\r\n"));
  if (!without_body) bytes += response.body;
  return bytes;
}

std::string to_head(const HttpResponse& response, bool keeps_alive, bool is_chunked) {
  return head_of(response, keeps_alive, is_chunked ? "Transfer-Encoding: chunked\r\n" : "");
}

std::string to_chunk(std::string_view piece) {
  char digits[2 * sizeof(size_t)];
  const auto [end, error] =
      std::to_chars(std::begin(digits), std::end(digits), piece.size(), /*base=*/16);
  TRIREME_ASSERT(error == std::errc() && !piece.empty());
  return concat(std::string_view(digits, end), "\r\n", piece, "\r\n");
}

}  // namespace trireme::comm
