#include "trireme/remote/store_client.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::remote {
namespace {

using std::chrono::milliseconds;

// A number at the start of `text`, which then begins behind it.
std::optional<uint64_t> take_number(std::string_view& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take_char(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string error_code(const HttpAnswer& answer) {
  constexpr std::string_view kBegin = "<Code>", kEnd = "</Code>";
  const std::string_view text = answer.text;
  const size_t begin = text.find(kBegin);
  if (begin == std::string_view::npos) return "";
  const size_t end = text.find(kEnd, begin);
  if (end == std::string_view::npos) return "";
  const std::string_view code = text.substr(begin + kBegin.size(), end - begin - kBegin.size());
  return is_word(code) ? std::string(code) : "";
}

// An answer to a request for a part that does not have what it says.
bool is_malformed(const HttpAnswer& answer) {
  if (answer.status != 206) return false;
  const auto range = parse_content_range(header_of(answer, "content-range"));
  return !range || answer.is_too_long || answer.num_bytes != range->last - range->begin + 1;
}

bool may_pass(const HttpAnswer& answer) {
  const int status = answer.status;
  return status == 0 || status == 408 || status == 429 || (status >= 500 && status != 501);
}

milliseconds pause_after(uint64_t attempt, milliseconds first, const HttpAnswer& answer) {
  const auto longest = std::min<uint64_t>(
      static_cast<uint64_t>(first.count()) << std::min<uint64_t>(attempt, 6), 5000);
  const uint64_t jitter = static_cast<uint64_t>(monotonic_ns()) / 64 % (longest / 2 + 1);
  uint64_t pause = longest / 2 + jitter;
  const std::string asked = header_of(answer, "retry-after");
  std::string_view text = asked;
  if (const auto seconds = take_number(text); seconds && text.empty()) {
    pause = std::max(pause, std::min<uint64_t>(*seconds, 30) * 1000);
  }
  return milliseconds(pause);
}

// "a=1&b=2", sorted and encoded, as it is signed.
std::string query_text(std::vector<Header> query) {
  const auto encoded = [](const std::string& text) {
    std::string all;
    for (const char c : text) all += c == '/' ? "%2F" : percent_encoded(std::string_view(&c, 1));
    return all;
  };
  for (auto& [name, value] : query) name = encoded(name), value = encoded(value);
  std::ranges::sort(query);
  std::string text;
  for (const auto& [name, value] : query) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

}  // namespace

std::optional<ContentRange> parse_content_range(const std::string& value) {
  std::string_view text = value;
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const auto begin = take_number(text);
  if (!begin || !take_char(text, '-')) return std::nullopt;
  const auto last = take_number(text);
  if (!last || !take_char(text, '/')) return std::nullopt;
  const auto total = take_number(text);
  if (!total || !text.empty() || *last < *begin || *total <= *last) return std::nullopt;
  return ContentRange{*begin, *last, *total};
}

std::string header_of(const HttpAnswer& answer, const std::string& name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? "" : found->second;
}

std::string said(const HttpAnswer& answer) {
  if (answer.status == 0) return answer.failure;
  const std::string code = error_code(answer);
  return concat("status ", answer.status, code.empty() ? "" : " ", code);
}

void refuse(const char* doing, const std::string& url, const HttpAnswer& answer) {
  const int status = answer.status;
  if (status == 401 || status == 403) {
    throw ConfigError(
        concat(doing, " ", url, ": the store refuses (", said(answer),
               "); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE (of gs:// "
               "GS_ACCESS_KEY_ID), and their rights on the bucket, listing it among them"));
  }
  if (status >= 300 && status < 400) {
    throw ConfigError(concat(doing, " ", url, ": the store sends elsewhere (", said(answer),
                             "); set AWS_REGION or AWS_ENDPOINT_URL to where the bucket is"));
  }
  throw ConfigError(concat(doing, " ", url, ": the store answers ", said(answer),
                           "; expected success: check the name of the bucket"));
}

struct StoreClient::Place {
  const StoreAccess* access = nullptr;  // null: not a bucket
  std::string region{}, host{}, path{}, url{};
};

StoreClient::StoreClient(StoreSettings settings, StoreOptions options)
    : settings_(std::move(settings)), options_(options) {
  for (const StoreAccess* access : {&settings_.s3, &settings_.gs}) {
    TRIREME_CHECK(access->region.empty() || is_word(access->region), "AWS_REGION is \"",
                  shown(access->region), "\"; expected a region such as us-east-1");
  }
}

StoreClient::Place StoreClient::place_of(const ObjectUrl& url, const Learned& learned) const {
  const std::string path = "/" + encoded_path(url);
  if (!url.is_bucket())
    return {.host = url.host, .path = path, .url = concat(url.scheme, "://", url.host, path)};
  const bool is_s3 = url.scheme == "s3";
  const StoreAccess& access = is_s3 ? settings_.s3 : settings_.gs;
  Place place{.access = &access};
  place.region = is_s3 && !learned.region.empty() ? learned.region : access.region;
  std::string base = access.endpoint;
  place.path = path;
  if (base.empty() && url.host.find('.') == std::string::npos) {
    base = concat("https://", url.host, ".s3.", place.region, ".amazonaws.com");
  } else {
    // A name with dots is in no certificate of the form *.s3.REGION.amazonaws.com.
    if (base.empty()) base = concat("https://s3.", place.region, ".amazonaws.com");
    place.path = "/" + url.host + place.path;
  }
  while (base.ends_with('/')) base.pop_back();
  const size_t begin = base.find("://") + 3;
  const size_t slash = std::min(base.find('/', begin), base.size());
  place.host = base.substr(begin, slash - begin);
  place.path = base.substr(slash) + place.path;
  place.url = base.substr(0, slash) + place.path;
  return place;
}

HttpAnswer StoreClient::send_once(const ObjectUrl& object, const StoreCall& call,
                                  const Learned& learned) {
  const Place place = place_of(object, learned);
  const std::string query = query_text(call.query);
  // At 64 KiB/s; slower ones would rather be asked again.
  const milliseconds transfer((call.out.size() + call.body.size()) / 65);
  HttpRequest request{.method = call.method,
                      .url = place.url + (query.empty() ? "" : "?" + query),
                      .headers = call.headers,
                      .body = call.body,
                      .out = call.out,
                      .follow_redirects = object.scheme == "https",
                      .patience = std::chrono::seconds(30) + transfer};
  if (place.access != nullptr && place.access->credentials) {
    const SignedRequest to_sign{.method = call.method,
                                .host = place.host,
                                .path = place.path,
                                .query = query,
                                .headers = call.headers,
                                .body = call.body};
    const int64_t now = static_cast<int64_t>(unix_seconds()) + learned.clock_offset;
    for (Header& each : sign(to_sign, *place.access->credentials, place.region, now)) {
      request.headers.push_back(std::move(each));
    }
  }
  return client_.send(request);
}

StoreClient::Learned StoreClient::learned() const {
  const std::lock_guard lock(mutex_);
  return learned_;
}

bool StoreClient::learn_from(const HttpAnswer& answer, const Learned& used) {
  constexpr int64_t kNearSeconds = 60;
  const std::string region = header_of(answer, "x-amz-bucket-region");
  const int status = answer.status;
  const std::lock_guard lock(mutex_);
  if ((status == 301 || status == 307 || status == 400) && is_word(region)) {
    learned_.region = region;
  } else if (status == 403 && error_code(answer) == "RequestTimeTooSkewed") {
    const auto theirs = parse_http_date(header_of(answer, "date"));
    if (!theirs) return false;
    const int64_t offset = *theirs - static_cast<int64_t>(unix_seconds());
    const int64_t change = offset - used.clock_offset;
    if (change < -kNearSeconds || change > kNearSeconds) learned_.clock_offset = offset;
  } else {
    return false;
  }
  return learned_ != used;
}

HttpAnswer StoreClient::send(const std::string& url, const StoreCall& call) {
  constexpr int kMostMalformed = 4, kMostLearned = 4;
  int num_malformed = 0, num_learned = 0;
  ObjectUrl object = parse_url(url);
  if (call.of_bucket) object.path.clear();
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t attempt = 0;; ++attempt) {
    const Learned used = learned();
    HttpAnswer answer = send_once(object, call, used);
    if (client_.is_cancelled()) throw CommError(concat(url, ": the call was cancelled"));
    if (!may_pass(answer) && !(is_malformed(answer) && num_malformed++ < kMostMalformed)) {
      if (num_learned++ < kMostLearned && learn_from(answer, used)) continue;
      return answer;
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited >= call.patience) {
      throw CommError(concat(call.method == "GET" ? "cannot read " : "cannot write ", url,
                             ": no answer from the store in ",
                             static_cast<int64_t>(in_seconds(waited)), " s, at last ", said(answer),
                             "; check the name of the store, or start again when it answers"));
    }
    const auto end =
        std::chrono::steady_clock::now() + pause_after(attempt, options_.first_pause, answer);
    while (!client_.is_cancelled() && std::chrono::steady_clock::now() < end) {
      constexpr milliseconds kSlice(50);
      const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
      std::this_thread::sleep_for(std::clamp(left, milliseconds(0), kSlice));
    }
  }
}

}  // namespace trireme::remote
