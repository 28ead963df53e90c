// HTTP requests by libcurl. A build may lack it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/remote/signature.h"

namespace trireme::remote {

// Whether this build has libcurl.
bool http_available();

struct HttpRequest {
  std::string method = "GET";
  std::string url{};
  std::vector<Header> headers{};
  std::span<const std::byte> body{};  // sent with PUT and POST
  std::span<std::byte> out{};         // takes the body of an answer with status 2xx
  bool follow_redirects = false;      // to https only
  std::chrono::milliseconds patience = std::chrono::seconds(60);  // for all of the answer
};

struct HttpAnswer {
  // 0: there was none, see `failure`.
  int status = 0;
  std::map<std::string, std::string> headers{};  // lower-case names; 100 at most
  size_t num_bytes = 0;                          // of the body, in `out`
  bool is_too_long = false;  // the body had more than `out` has room for, and was not read on
  std::string text{};        // the first 16 KiB of the body of another status
  std::string failure{};     // libcurl's words: the name is unknown, nothing answered, it broke off
};

// Seconds since 1970 of a date such as "Sun, 06 Nov 1994 08:49:37 GMT"; nullopt for another text.
std::optional<int64_t> parse_http_date(const std::string& text);

// Keeps connections between requests. Thread safe.
class HttpClient {
 public:
  // Throws: ConfigError in a build without libcurl
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Gives up when nothing answers for 10 s, or less than 1 KiB/s comes for 15 s.
  HttpAnswer send(const HttpRequest& request);

  // Ends the requests under way, and all later ones, without an answer. Any thread may call it.
  void cancel() { is_cancelled_ = true; }
  bool is_cancelled() const { return is_cancelled_; }

 private:
  class Connection;
  std::atomic<bool> is_cancelled_{false};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace trireme::remote
