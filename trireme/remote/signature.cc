#include "trireme/remote/signature.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/sha256.h"

namespace trireme::remote {
namespace {

std::string_view as_text(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string hex(const Sha256& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

// "20130524T000000Z". Not strftime(), whose digits may be the locale's.
std::string timestamp(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[64];
  std::snprintf(text, sizeof(text), "%04d%02d%02dT%02d%02d%02dZ", utc.tm_year + 1900,
                utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text;
}

}  // namespace

std::vector<Header> sign(const SignedRequest& request, const Credentials& credentials,
                         const std::string& region, int64_t seconds) {
  const std::string time = timestamp(seconds), day = time.substr(0, 8);
  const std::string body =
      hex(sha256({reinterpret_cast<const char*>(request.body.data()), request.body.size()}));
  std::vector<Header> added = {{"x-amz-content-sha256", body}, {"x-amz-date", time}};
  if (!credentials.session_token.empty()) {
    added.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::vector<Header> all = request.headers;
  all.insert(all.end(), added.begin(), added.end());
  all.emplace_back("host", request.host);
  std::ranges::sort(all);
  std::string lines, names;
  for (const auto& [name, value] : all) {
    lines += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = request.method + "\n" + request.path + "\n" + request.query + "\n" +
                                lines + "\n" + names + "\n" + body;
  const std::string scope = day + "/" + region + "/s3/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + hex(sha256(canonical));
  Sha256 key = hmac_sha256("AWS4" + credentials.secret_key, day);
  for (const std::string_view part :
       {std::string_view(region), std::string_view("s3"), std::string_view("aws4_request")}) {
    key = hmac_sha256(as_text(key), part);
  }
  added.emplace_back("authorization", concat("AWS4-HMAC-SHA256 Credential=", credentials.access_key,
                                             "/", scope, ",SignedHeaders=", names, ",Signature=",
                                             hex(hmac_sha256(as_text(key), to_sign))));
  return added;
}

}  // namespace trireme::remote
