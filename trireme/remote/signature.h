// Signs requests to an S3 store (AWS Signature Version 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::remote {

// Never printed.
struct Credentials {
  std::string access_key{};
  std::string secret_key{};
  std::string session_token{};  // "": none
};

using Header = std::pair<std::string, std::string>;  // lower-case name, value

struct SignedRequest {
  std::string method = "GET";
  std::string host{};             // with the port, if the URL has one
  std::string path{};             // percent-encoded, begins with a slash
  std::string query{};            // "a=1&b=2", encoded and sorted by name
  std::vector<Header> headers{};  // further ones to sign, such as "range"
  std::span<const std::byte> body{};
};

// The headers to send besides `request.headers`: authorization, x-amz-content-sha256, x-amz-date,
// and with a session token x-amz-security-token. The store compares the body with its SHA-256.
// seconds: the time of the request since 1970, UTC; stores refuse one that is some minutes off
// Source: "Authenticating Requests: Using the Authorization Header", Amazon S3 API reference
std::vector<Header> sign(const SignedRequest& request, const Credentials& credentials,
                         const std::string& region, int64_t seconds);

}  // namespace trireme::remote
