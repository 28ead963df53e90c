#include "trireme/remote/url.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::remote {
namespace {

constexpr size_t kMostUrlBytes = 4096;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_bucket_name(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && std::ranges::all_of(name, [](char c) {
           return (is_letter(c) && c >= 'a') || is_digit(c) || c == '-' || c == '.' || c == '_';
         });
}

bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_control(unsigned char c) { return c < 32 || c == 127; }

// What a path may have beside letters, digits, "-_.~" and "/".
constexpr std::string_view kOfPaths = "!$&'()*+,;=:@";

// A name or an address, [IPv6] too, and a port.
bool is_host(std::string_view host) {
  return !host.empty() && std::ranges::all_of(host, [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == ':' || c == '[' || c == ']';
  });
}

}  // namespace

ObjectUrl parse_url(const std::string& url) {
  TRIREME_CHECK(url.size() <= kMostUrlBytes, "a URL of ", url.size(),
                " characters; expected at most ", kMostUrlBytes);
  TRIREME_CHECK(std::ranges::none_of(url, is_control),
                "a URL with control characters; expected a place, such as s3://BUCKET/PREFIX");
  const size_t end = url.find("://");
  const bool is_odd = url.find_first_of("?#@") != std::string::npos;
  const auto check_secret = [&](bool may_be_one) {
    // The message shows nothing of it.
    TRIREME_CHECK(!may_be_one,
                  "a URL with a user name, a query or a fragment; expected only a place, such as "
                  "s3://BUCKET/PREFIX: keys come from the environment or ~/.aws/credentials; in a "
                  "name on a web server, write %3F, %23 and %40 for ?, # and @");
  };
  ObjectUrl parsed{.scheme = url.substr(0, std::min(end, url.size()))};
  check_secret(is_odd && !parsed.is_bucket());
  TRIREME_CHECK(end != std::string::npos, url, " is no URL; expected s3://BUCKET/PREFIX");
  TRIREME_CHECK(parsed.is_bucket() || parsed.scheme == "https" || parsed.scheme == "http", url,
                " begins with ", parsed.scheme,
                "://; expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or https://HOST/PREFIX");
  const size_t begin = end + 3;
  const size_t slash = std::min(url.find('/', begin), url.size());
  parsed.host = url.substr(begin, slash - begin);
  parsed.path = url.substr(std::min(slash + 1, url.size()));
  const bool is_place = parsed.is_bucket() ? is_bucket_name(parsed.host) : is_host(parsed.host);
  check_secret(is_odd && !is_place);
  TRIREME_CHECK(
      is_place, url, ": \"", parsed.host, "\" is no ",
      parsed.is_bucket() ? "bucket; expected 3 to 63 of a-z, 0-9, \"-\", \".\" and \"_\"" : "host");
  TRIREME_CHECK(!parsed.path.empty(), url, " names no object; expected ", parsed.scheme, "://",
                parsed.host, "/PREFIX");
  return parsed;
}

std::string encoded_path(const ObjectUrl& url) {
  if (url.is_bucket()) return percent_encoded(url.path);
  const std::string_view path = url.path;
  std::string encoded;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool is_encoded =
        path[i] == '%' && i + 2 < path.size() && is_hex(path[i + 1]) && is_hex(path[i + 2]);
    const bool may_stand = is_encoded || kOfPaths.find(path[i]) != std::string_view::npos;
    encoded += may_stand ? std::string(1, path[i]) : percent_encoded(path.substr(i, 1));
  }
  return encoded;
}

void check_server_url(const std::string& url) {
  TRIREME_CHECK(url.size() <= kMostUrlBytes, "a URL of ", url.size(),
                " characters; expected at most ", kMostUrlBytes);
  TRIREME_CHECK(url.find_first_of("?#@") == std::string::npos,
                "a URL with a user name, a query or a fragment; expected only a place, such as "
                "http://127.0.0.1:5000: secrets come from the environment");
  const bool is_web = url.starts_with("http://") || url.starts_with("https://");
  const size_t begin = url.find("://") + 3;
  const size_t end = std::min(url.find('/', begin), url.size());
  const bool is_printable =
      std::ranges::all_of(url, [](unsigned char c) { return c > 32 && c != 127; });
  TRIREME_CHECK(is_web && is_printable && is_host(std::string_view(url).substr(begin, end - begin)),
                shown(url),
                " is no address of a server; expected one such as "
                "http://127.0.0.1:5000");
}

std::string percent_encoded(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    if (is_letter(c) || is_digit(c) || c == '-' || c == '_' || c == '.' || c == '~' || c == '/') {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return encoded;
}

}  // namespace trireme::remote
