#include "trireme/remote/store_writer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::remote {
namespace {

constexpr const char* kWriting = "cannot write";
constexpr const char* kListing = "cannot list";
constexpr uint64_t kMostParts = 10'000;  // of a multipart upload
constexpr size_t kMostListBytes = 2 << 20;
constexpr const char* kListedAtOnce =
    "500";  // names of up to 1024 bytes, three times as long encoded

bool is_success(const HttpAnswer& answer) { return answer.status >= 200 && answer.status < 300; }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The text between <NAME> and </NAME> from `at` on, which then lies behind it; nullopt: there is
// none.
std::optional<std::string_view> next_element(std::string_view text, const std::string& name,
                                             size_t& at) {
  const std::string begin = "<" + name + ">", end = "</" + name + ">";
  const size_t first = text.find(begin, at);
  if (first == std::string_view::npos) return std::nullopt;
  const size_t last = text.find(end, first);
  if (last == std::string_view::npos) return std::nullopt;
  at = last + end.size();
  return text.substr(first + begin.size(), last - first - begin.size());
}

std::optional<std::string_view> element(std::string_view text, const std::string& name) {
  size_t at = 0;
  return next_element(text, name, at);
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_encoded = text[i] == '%' && i + 2 < text.size() && digit_of(text[i + 1]) >= 0 &&
                            digit_of(text[i + 2]) >= 0;
    if (is_encoded) {
      decoded += static_cast<char>(digit_of(text[i + 1]) * 16 + digit_of(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

// &amp; &lt; &gt; &quot; &apos;, as tokens of a listing may have them.
std::string xml_decoded(std::string_view text) {
  constexpr std::pair<std::string_view, char> kNames[] = {
      {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  std::string decoded;
  while (!text.empty()) {
    const auto found = std::ranges::find_if(
        kNames, [&](const auto& each) { return text.starts_with(each.first); });
    decoded += found == std::end(kNames) ? text.front() : found->second;
    text.remove_prefix(found == std::end(kNames) ? 1 : found->first.size());
  }
  return decoded;
}

}  // namespace

HttpAnswer StoreWriter::send(const std::string& url, StoreCall call) {
  TRIREME_CHECK(parse_url(url).is_bucket(), url,
                " is not in a bucket; expected s3://BUCKET/PREFIX or gs://BUCKET/PREFIX");
  call.patience = client_.options().patience;
  return client_.send(url, call);
}

void StoreWriter::put(const std::string& url, const ByteSource& content, uint64_t part_bytes) {
  if (content.num_bytes() > part_bytes) return put_in_parts(url, content, part_bytes);
  const std::string bytes = read_all(content, part_bytes);
  const HttpAnswer answer = send(url, {.method = "PUT", .body = bytes_of(bytes)});
  if (!is_success(answer)) refuse(kWriting, url, answer);
}

// Nothing of it is seen before the last call. Parts that are left are the bucket's to remove, by a
// rule for uploads that were not completed; this function removes those of an upload that fails.
void StoreWriter::put_in_parts(const std::string& url, const ByteSource& content,
                               uint64_t part_bytes) {
  const uint64_t size = content.num_bytes();
  part_bytes = std::max(part_bytes, (size + kMostParts - 1) / kMostParts);
  std::string text(64 << 10, '\0');
  const auto out = std::as_writable_bytes(std::span(text));
  const HttpAnswer begun = send(url, {.method = "POST", .query = {{"uploads", ""}}, .out = out});
  if (!is_success(begun)) refuse(kWriting, url, begun);
  const auto id = element(std::string_view(text).substr(0, begun.num_bytes), "UploadId");
  TRIREME_CHECK(id && !id->empty() && id->size() <= 1024, kWriting, " ", url,
                ": the store has begun no upload in parts; expected an UploadId");
  const std::string upload = xml_decoded(*id);
  try {
    std::string parts = "<CompleteMultipartUpload>";
    std::vector<std::byte> part;
    for (uint64_t at = 0, number = 1; at < size; at += part_bytes, ++number) {
      part.resize(std::min(part_bytes, size - at));
      content.read(at, part);
      const HttpAnswer sent =
          send(url, {.method = "PUT",
                     .query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}},
                     .body = part});
      if (!is_success(sent)) refuse(kWriting, url, sent);
      const std::string tag = header_of(sent, "etag");
      TRIREME_CHECK(tag.size() <= 256 && tag.find_first_of("<>&") == std::string::npos, kWriting,
                    " ", url, ": the store answers part ", number, " without a usable ETag");
      parts += concat("<Part><PartNumber>", number, "</PartNumber><ETag>", tag, "</ETag></Part>");
    }
    parts += "</CompleteMultipartUpload>";
    const HttpAnswer completed = send(
        url,
        {.method = "POST", .query = {{"uploadId", upload}}, .body = bytes_of(parts), .out = out});
    if (!is_success(completed)) refuse(kWriting, url, completed);
    // A failure after the store has begun to answer comes with status 200.
    const std::string_view said = std::string_view(text).substr(0, completed.num_bytes);
    TRIREME_CHECK(said.find("<Error>") == std::string_view::npos, kWriting, " ", url,
                  ": the store could not join its parts; start again");
  } catch (...) {
    try {
      send(url, {.method = "DELETE", .query = {{"uploadId", upload}}});
    } catch (const Error&) {  // the first error says more
    }
    throw;
  }
}

std::optional<std::string> StoreWriter::put_if(const std::string& url, std::string_view text,
                                               const WriteCondition& condition) {
  StoreCall call{.method = "PUT", .body = bytes_of(text)};
  if (condition.is_absent) call.headers.emplace_back("if-none-match", "*");
  if (!condition.tag.empty()) call.headers.emplace_back("if-match", condition.tag);
  const HttpAnswer answer = send(url, std::move(call));
  // 409: another one is being written at this time; 404: the one with the ETag is gone.
  const int status = answer.status;
  if (status == 412 || status == 409 || (status == 404 && !condition.tag.empty())) {
    return std::nullopt;
  }
  TRIREME_CHECK(
      status != 501, kWriting, " ", url,
      ": the store does not know conditions of writing (If-None-Match); use one that does");
  if (!is_success(answer)) refuse(kWriting, url, answer);
  return header_of(answer, "etag");
}

std::optional<SmallObject> StoreWriter::get(const std::string& url, size_t max_bytes) {
  SmallObject object{.text = std::string(max_bytes, '\0')};
  const HttpAnswer answer = send(url, {.out = std::as_writable_bytes(std::span(object.text))});
  if (answer.status == 404 || answer.status == 410) return std::nullopt;
  if (!is_success(answer)) refuse("cannot read", url, answer);
  const auto now = parse_http_date(header_of(answer, "date"));
  const auto changed = parse_http_date(header_of(answer, "last-modified"));
  object.tag = header_of(answer, "etag");
  TRIREME_CHECK(
      !answer.is_too_long && now && changed && !object.tag.empty(), "cannot read ", url,
      ": the store sends too much, or no ETag, Date and Last-Modified; expected a text of "
      "at most ",
      max_bytes, " bytes");
  object.text.resize(answer.num_bytes);
  object.age_seconds = std::max<int64_t>(*now - *changed, 0);
  return object;
}

std::vector<ListedObject> StoreWriter::list(const std::string& url, size_t most) {
  const ObjectUrl asked = parse_url(url);
  std::vector<ListedObject> objects;
  std::string text(kMostListBytes, '\0'), token;
  do {
    StoreCall call{.query = {{"list-type", "2"},
                             {"prefix", asked.path},
                             {"encoding-type", "url"},
                             {"max-keys", kListedAtOnce}},
                   .out = std::as_writable_bytes(std::span(text)),
                   .of_bucket = true};
    if (!token.empty()) call.query.emplace_back("continuation-token", token);
    const HttpAnswer answer = send(url, std::move(call));
    if (!is_success(answer)) refuse(kListing, url, answer);
    TRIREME_CHECK(!answer.is_too_long, kListing, " ", url, ": the store answers with more than ",
                  kMostListBytes, " bytes; expected at most ", kListedAtOnce, " names");
    const std::string_view listed = std::string_view(text).substr(0, answer.num_bytes);
    size_t at = 0;
    while (const auto item = next_element(listed, "Contents", at)) {
      const auto key = element(*item, "Key"), size = element(*item, "Size");
      uint64_t num_bytes = 0;
      const bool has_size =
          size &&
          std::from_chars(size->data(), size->data() + size->size(), num_bytes).ec == std::errc();
      const std::string name = key ? percent_decoded(*key) : "";
      TRIREME_CHECK(has_size && name.starts_with(asked.path), kListing, " ", url,
                    ": the store lists objects that were not asked for, or without a size");
      TRIREME_CHECK(objects.size() < most, kListing, " ", url, ": it has more than ", most,
                    " objects; choose another prefix");
      const auto tag = element(*item, "ETag");
      objects.push_back(
          {name.substr(asked.path.size()), num_bytes, tag ? xml_decoded(*tag) : std::string()});
    }
    const auto next = element(listed, "NextContinuationToken");
    const std::string next_token = next ? xml_decoded(*next) : "";
    TRIREME_CHECK(next_token.empty() || next_token != token, kListing, " ", url,
                  ": the store lists the same names again and again");
    token = next_token;
  } while (!token.empty());
  return objects;
}

void StoreWriter::remove(const std::string& url) {
  const HttpAnswer answer = send(url, {.method = "DELETE"});
  if (!is_success(answer) && answer.status != 404) refuse("cannot remove", url, answer);
}

}  // namespace trireme::remote
