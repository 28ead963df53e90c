// Where an object lies: s3://BUCKET/KEY, gs://BUCKET/KEY or https://HOST/PATH.
#pragma once

#include <string>
#include <string_view>

namespace trireme::remote {

struct ObjectUrl {
  std::string scheme{};  // "s3", "gs", "https" or "http"
  std::string host{};    // of s3 and gs the bucket; of others the host, with a port if one is given
  // Without the slash at its beginning. Of s3 and gs the key, in which every character stands for
  // itself; of others as given, where %20 stands for a space.
  std::string path{};

  bool is_bucket() const { return scheme == "s3" || scheme == "gs"; }
};

// Throws: ConfigError for another scheme, a bucket or host of other characters, an empty path,
//         control characters, and user names, passwords, queries and fragments, which may be
//         secrets. A key may have "?", "#" and "@".
ObjectUrl parse_url(const std::string& url);

// The path as requests and signatures have it, without the slash at its beginning. A key is encoded
// once; of a web server's path, only what no URL may have.
// Source: RFC 3986, section 3.3; "Authenticating Requests", Amazon S3 API reference
std::string encoded_path(const ObjectUrl& url);

// Checks the address of a web server, with or without a path: http://127.0.0.1:5000.
// Throws: ConfigError for another scheme, a host of other characters, and user names, passwords,
//         queries and fragments, which may be secrets
void check_server_url(const std::string& url);

// Percent-encodes all but letters, digits, "-_.~" and "/". RFC 3986, section 2.3
std::string percent_encoded(std::string_view text);

}  // namespace trireme::remote
