#include "trireme/remote/store.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "trireme/base/clock.h"

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

struct ContentRange {
  uint64_t begin = 0, last = 0, total = 0;
};

// "bytes 0-9/100". RFC 9110, section 14.4
std::optional<ContentRange> parse_range(std::string_view text) {
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

std::string header(const HttpAnswer& answer, const char* name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? "" : found->second;
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// The store's own word for an error, such as NoSuchKey: the only part of its text that is shown.
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

std::string said(const HttpAnswer& answer) {
  if (answer.status == 0) return answer.failure;
  const std::string code = error_code(answer);
  return concat("status ", answer.status, code.empty() ? "" : " ", code);
}

// An answer to a request for a part that does not have what it says.
bool is_malformed(const HttpAnswer& answer) {
  if (answer.status != 206) return false;
  const auto range = parse_range(header(answer, "content-range"));
  return !range || answer.is_too_long || answer.num_bytes != range->last - range->begin + 1;
}

bool may_pass(const HttpAnswer& answer) {
  const int status = answer.status;
  return status == 0 || status == 408 || status == 429 || (status >= 500 && status != 501);
}

// A weak ETag allows other bytes, so it does not name a version.
std::string tag_of(const HttpAnswer& answer) {
  const std::string tag = header(answer, "etag");
  const bool is_strong = tag.starts_with('"') && tag.size() <= 256;
  return is_strong ? tag : header(answer, "last-modified").substr(0, 64);
}

}  // namespace

namespace {

milliseconds pause_after(uint64_t attempt, milliseconds first, const HttpAnswer& answer) {
  const auto longest = std::min<uint64_t>(
      static_cast<uint64_t>(first.count()) << std::min<uint64_t>(attempt, 6), 5000);
  const uint64_t jitter = static_cast<uint64_t>(monotonic_ns()) / 64 % (longest / 2 + 1);
  uint64_t pause = longest / 2 + jitter;
  const std::string asked = header(answer, "retry-after");
  std::string_view text = asked;
  if (const auto seconds = take_number(text); seconds && text.empty()) {
    pause = std::max(pause, std::min<uint64_t>(*seconds, 30) * 1000);
  }
  return milliseconds(pause);
}

}  // namespace

// A part of an object.
struct Store::Wanted {
  uint64_t offset = 0;
  std::span<std::byte> out;
  std::string tag{};  // if the object still has it
};

struct Store::Place {
  const StoreAccess* access = nullptr;  // null: not a bucket
  std::string region{}, host{}, path{}, url{};
};

Store::Store(StoreSettings settings, StoreOptions options)
    : settings_(std::move(settings)), options_(options) {
  for (const StoreAccess* access : {&settings_.s3, &settings_.gs}) {
    TRIREME_CHECK(access->region.empty() || is_word(access->region), "AWS_REGION is \"",
                  access->region, "\"; expected a region such as us-east-1");
  }
}

Store::Place Store::place_of(const ObjectUrl& url) {
  if (!url.is_bucket()) {
    return {.host = url.host,
            .path = "/" + url.path,
            .url = concat(url.scheme, "://", url.host, "/", url.path)};
  }
  const StoreAccess& access = url.scheme == "s3" ? settings_.s3 : settings_.gs;
  Place place{.access = &access};
  {
    const std::lock_guard lock(mutex_);
    place.region = access.region;
  }
  std::string base = access.endpoint;
  place.path = "/" + percent_encoded(url.path);
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

HttpAnswer Store::send_once(const ObjectUrl& object, const Wanted& wanted) {
  const Place place = place_of(object);
  HttpRequest request{
      .url = place.url,
      .headers = {{"range", concat("bytes=", wanted.offset, "-",
                                   wanted.offset + std::max<uint64_t>(wanted.out.size(), 1) - 1)}},
      .out = wanted.out,
      .follow_redirects = object.scheme == "https",
      // At 64 KiB/s; slower ones would rather be asked again.
      .patience = std::chrono::seconds(30) + milliseconds(wanted.out.size() / 65)};
  if (wanted.tag.starts_with('"')) request.headers.emplace_back("if-match", wanted.tag);
  if (place.access != nullptr && place.access->credentials) {
    const SignedRequest to_sign{.host = place.host, .path = place.path, .headers = request.headers};
    const auto now = static_cast<int64_t>(unix_seconds()) + clock_offset_.load();
    for (Header& each : sign(to_sign, *place.access->credentials, place.region, now)) {
      request.headers.push_back(std::move(each));
    }
  }
  return client_.get(request);
}

bool Store::learn_from(const HttpAnswer& answer) {
  const std::string region = header(answer, "x-amz-bucket-region");
  if ((answer.status == 301 || answer.status == 307 || answer.status == 400) && is_word(region)) {
    const std::lock_guard lock(mutex_);
    return std::exchange(settings_.s3.region, region) != region;
  }
  if (answer.status != 403 || error_code(answer) != "RequestTimeTooSkewed") return false;
  const auto theirs = parse_http_date(header(answer, "date"));
  if (!theirs) return false;
  const int64_t offset = *theirs - static_cast<int64_t>(unix_seconds());
  return std::abs(clock_offset_.exchange(offset) - offset) > 60;
}

HttpAnswer Store::send(const std::string& url, const Wanted& wanted, milliseconds patience) {
  constexpr int kMostMalformed = 4, kMostLearned = 4;
  int num_malformed = 0, num_learned = 0;
  const ObjectUrl object = parse_url(url);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t attempt = 0;; ++attempt) {
    HttpAnswer answer = send_once(object, wanted);
    if (!may_pass(answer) && !(is_malformed(answer) && num_malformed++ < kMostMalformed)) {
      if (num_learned++ < kMostLearned && learn_from(answer)) continue;
      return answer;
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited >= patience) {
      throw CommError(concat("cannot read ", url, ": no answer from the store in ",
                             static_cast<int64_t>(in_seconds(waited)), " s, at last ", said(answer),
                             "; check the name of the store, or start again when it answers"));
    }
    std::this_thread::sleep_for(pause_after(attempt, options_.first_pause, answer));
  }
}

namespace {

[[noreturn]] void refuse(const std::string& url, const HttpAnswer& answer) {
  const int status = answer.status;
  if (status == 401 || status == 403) {
    throw ConfigError(
        concat("cannot read ", url, ": the store refuses (", said(answer),
               "); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE (of "
               "gs:// GS_ACCESS_KEY_ID), and that they may read and list the bucket"));
  }
  if (status >= 300 && status < 400) {
    throw ConfigError(concat("cannot read ", url, ": the store sends elsewhere (", said(answer),
                             "); set AWS_REGION or AWS_ENDPOINT_URL to where the bucket is"));
  }
  throw ConfigError(
      concat("cannot read ", url, ": the store answers ", said(answer), "; expected the object"));
}

// Of an answer 206 or 200 to a request for a part.
ContentRange range_of(const std::string& url, const HttpAnswer& answer, uint64_t offset) {
  const auto range =
      answer.status == 206 ? parse_range(header(answer, "content-range")) : std::nullopt;
  if (!range) {
    throw ConfigError(concat("cannot read ", url,
                             ": the server sends whole files only; expected one that answers "
                             "requests for a range (Accept-Ranges: bytes)"));
  }
  if (range->begin != offset || answer.is_too_long ||
      answer.num_bytes != range->last - range->begin + 1) {
    throw ConfigError(concat("cannot read ", url, ": asked for bytes from ", offset,
                             " on, the store sent ", answer.num_bytes, " bytes from ", range->begin,
                             " on; expected those asked for"));
  }
  return *range;
}

}  // namespace

std::optional<ObjectVersion> Store::find(const std::string& url) {
  std::byte first{};
  const HttpAnswer answer = send(url, {.out = std::span(&first, 1)}, options_.first_patience);
  if (answer.status == 404 || answer.status == 410) return std::nullopt;
  if (answer.status == 416 ||
      (answer.status == 200 && answer.num_bytes == 0 && !answer.is_too_long)) {
    return ObjectVersion{.tag = tag_of(answer)};  // empty
  }
  if (answer.status < 200 || answer.status >= 300) refuse(url, answer);
  return ObjectVersion{.tag = tag_of(answer), .num_bytes = range_of(url, answer, 0).total};
}

void Store::read(const std::string& url, const ObjectVersion& version, uint64_t offset,
                 std::span<std::byte> out) {
  if (out.empty()) return;
  const HttpAnswer answer =
      send(url, {.offset = offset, .out = out, .tag = version.tag}, options_.patience);
  const bool is_gone = answer.status == 404 || answer.status == 410;
  const bool has_changed = answer.status == 412 || answer.status == 416;
  if (!is_gone && !has_changed) {
    if (answer.status < 200 || answer.status >= 300) refuse(url, answer);
    const ContentRange range = range_of(url, answer, offset);
    if (range.total == version.num_bytes && tag_of(answer) == version.tag) {
      if (answer.num_bytes == out.size()) return;
      throw ConfigError(concat("cannot read ", url, ": it ends before byte ", offset + out.size(),
                               "; it had ", version.num_bytes, " bytes when it was opened"));
    }
  }
  throw ConfigError(concat(url, is_gone ? " is gone" : " has changed",
                           " since it was opened; resume with the data that the run began with"));
}

}  // namespace trireme::remote
