#include "trireme/remote/store.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::remote {
namespace {

constexpr const char* kReading = "cannot read";

// A weak ETag allows other bytes, so it does not name a version.
std::string tag_of(const HttpAnswer& answer) {
  constexpr size_t kMostTagBytes = 256, kMostDateBytes = 64;
  const std::string tag = header_of(answer, "etag");
  const bool is_strong = tag.starts_with('"') && tag.size() <= kMostTagBytes;
  return is_strong ? tag : header_of(answer, "last-modified").substr(0, kMostDateBytes);
}

bool is_success(const HttpAnswer& answer) { return answer.status >= 200 && answer.status < 300; }
bool is_missing(const HttpAnswer& answer) { return answer.status == 404 || answer.status == 410; }

Header range_header(uint64_t offset, uint64_t num_bytes) {
  return {"range", concat("bytes=", offset, "-", offset + num_bytes - 1)};
}

// Of a success.
ContentRange range_of(const std::string& url, const HttpAnswer& answer, uint64_t offset) {
  const auto range =
      answer.status == 206 ? parse_content_range(header_of(answer, "content-range")) : std::nullopt;
  TRIREME_CHECK(range, kReading, " ", url,
                ": the server sends whole files only; expected one that answers requests for a "
                "range (Accept-Ranges: bytes)");
  TRIREME_CHECK(range->begin == offset && !answer.is_too_long &&
                    answer.num_bytes == range->last - range->begin + 1,
                kReading, " ", url, ": asked for bytes from ", offset, " on, the store sent ",
                answer.num_bytes, " bytes from ", range->begin, " on; expected those asked for");
  return *range;
}

}  // namespace

std::optional<ObjectVersion> Store::find(const std::string& url) {
  std::byte first{};
  const HttpAnswer answer = client_.send(url, {.headers = {range_header(0, 1)},
                                               .out = std::span(&first, 1),
                                               .patience = client_.options().first_patience});
  if (is_missing(answer)) return std::nullopt;
  const bool has_nothing = answer.status == 200 && answer.num_bytes == 0 && !answer.is_too_long;
  if (answer.status == 416 || has_nothing) return ObjectVersion{.tag = tag_of(answer)};
  if (!is_success(answer)) refuse(kReading, url, answer);
  return ObjectVersion{.tag = tag_of(answer), .num_bytes = range_of(url, answer, 0).total};
}

void Store::read(const std::string& url, const ObjectVersion& version, uint64_t offset,
                 std::span<std::byte> out) {
  if (out.empty()) return;
  std::vector<Header> headers = {range_header(offset, out.size())};
  if (version.tag.starts_with('"')) headers.emplace_back("if-match", version.tag);
  const HttpAnswer answer = client_.send(
      url, {.headers = std::move(headers), .out = out, .patience = client_.options().patience});
  const bool has_changed = answer.status == 412 || answer.status == 416;
  if (!is_missing(answer) && !has_changed) {
    if (!is_success(answer)) refuse(kReading, url, answer);
    const ContentRange range = range_of(url, answer, offset);
    if (range.total == version.num_bytes && tag_of(answer) == version.tag) {
      TRIREME_CHECK(answer.num_bytes == out.size(), kReading, " ", url, ": it ends before byte ",
                    offset + out.size(), "; it had ", version.num_bytes,
                    " bytes when it was opened");
      return;
    }
  }
  throw ConfigError(concat(url, is_missing(answer) ? " is gone" : " has changed",
                           " since it was opened; resume with the data that the run began with"));
}

}  // namespace trireme::remote
