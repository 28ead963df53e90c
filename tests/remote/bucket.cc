#include "tests/remote/bucket.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/remote/url.h"

namespace trireme::remote {
namespace {

std::string date_of(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  char text[64];
  std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&time));
  return text;
}

std::string decoded(const std::string& text) {
  std::string all;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      all += static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      all += text[i];
    }
  }
  return all;
}

// A name as Amazon S3 lists it: with "+" for a space.
std::string listed(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == ' ' ? "+" : percent_encoded(std::string_view(&c, 1));
  return text;
}

// The value of "name=value" in a query; "": it has none.
std::string parameter(const std::string& query, const std::string& name) {
  const size_t at = ("&" + query).find("&" + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 1;
  return decoded(query.substr(begin, query.find('&', begin) - begin));
}

}  // namespace

std::map<std::string, std::string> Bucket::objects() {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> all;
  for (const auto& [name, object] : objects_) all[name] = object.content;
  return all;
}

void Bucket::put(const std::string& name, const std::string& content) {
  const std::lock_guard lock(mutex_);
  objects_[name] = {content, concat("\"", ++num_written_, "\""), now_};
}

void Bucket::age(int64_t seconds) {
  const std::lock_guard lock(mutex_);
  now_ += seconds;
}

void Bucket::on_request(std::function<std::string(const std::string&, const std::string&)> hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

void Bucket::list_tags(bool has_tags) {
  const std::lock_guard lock(mutex_);
  has_tags_ = has_tags;
}

int Bucket::num_uploads() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(uploads_.size());
}

std::string Bucket::list(const std::string& query) {
  constexpr int kPage = 2;
  const std::string prefix = parameter(query, "prefix");
  const std::string after = decoded(parameter(query, "continuation-token"));
  std::string text = "<ListBucketResult>";
  int count = 0;
  for (const auto& [name, object] : objects_) {
    if (!name.starts_with(prefix) || name <= after) continue;
    if (count == kPage) return text + "</ListBucketResult>";
    const std::string tag = object.tag.substr(1, object.tag.size() - 2);
    text += concat("<Contents><Key>", listed(name), "</Key>",
                   has_tags_ ? concat("<ETag>&quot;", tag, "&quot;</ETag>") : "", "<Size>",
                   object.content.size(), "</Size></Contents>");
    if (++count == kPage) {
      text += concat("<NextContinuationToken>", percent_encoded(name), "</NextContinuationToken>");
    }
  }
  return text + "</ListBucketResult>";
}

std::string Bucket::answer(const std::string& request) {
  const size_t space = request.find(' ');
  const std::string method = request.substr(0, space);
  const std::string target = request.substr(space + 1, request.find(' ', space + 1) - space - 1);
  const size_t mark = std::min(target.find('?'), target.size());
  const std::string query = mark < target.size() ? target.substr(mark + 1) : "";
  const std::string name = decoded(target.substr(0, mark)).substr(std::string("/bucket/").size());
  const std::string body = request.substr(request.find("\r\n\r\n") + 4);
  std::function<std::string(const std::string&, const std::string&)> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = hook_;
  }
  if (hook) {
    const std::string instead = hook(method, name);
    if (instead == kDoneAndLost) {
      on_request(nullptr);
      answer(request);
      on_request(hook);
      return "";
    }
    if (!instead.empty()) return instead;
  }
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(name);
  const auto write = [&](const std::string& content) {
    objects_[name] = {content, concat("\"", ++num_written_, "\""), now_};
    return plain_answer("200 OK", concat("ETag: ", objects_[name].tag, "\r\n"));
  };
  const std::string upload = parameter(query, "uploadId");
  if (method == "GET" && query.find("list-type") != std::string::npos) {
    return plain_answer("200 OK", "", list(query));
  }
  if (method == "POST" && query == "uploads=") {
    const std::string id = concat("up&", ++num_written_);
    uploads_[id];
    return plain_answer("200 OK", "", "<X><UploadId>up&amp;" + id.substr(3) + "</UploadId></X>");
  }
  if (!upload.empty()) {
    if (!uploads_.contains(upload))
      return plain_answer("404 Not Found", "", "<Code>NoSuchUpload</Code>");
    if (method == "PUT") {
      uploads_[upload][std::atoi(parameter(query, "partNumber").c_str())] = body;
      return plain_answer("200 OK", concat("ETag: \"p", uploads_[upload].size(), "\"\r\n"));
    }
    const std::map<int, std::string> parts = uploads_[upload];
    uploads_.erase(upload);
    if (method == "DELETE") return plain_answer("204 No Content");
    std::string whole;
    for (const auto& [number, part] : parts) whole += part;
    return write(whole);
  }
  if (method == "PUT") {
    const std::string if_match = request_header(request, "if-match");
    const bool is_refused =
        (!request_header(request, "if-none-match").empty() && found != objects_.end()) ||
        (!if_match.empty() && (found == objects_.end() || found->second.tag != if_match));
    return is_refused ? plain_answer("412 Precondition Failed") : write(body);
  }
  if (method == "DELETE") {
    objects_.erase(name);
    return plain_answer("204 No Content");
  }
  if (found == objects_.end()) return plain_answer("404 Not Found", "", "<Code>NoSuchKey</Code>");
  const Object& object = found->second;
  if (!request_header(request, "range").empty())
    return range_answer(request, object.content, object.tag);
  return plain_answer("200 OK",
                      concat("ETag: ", object.tag, "\r\nDate: ", date_of(now_),
                             "\r\nLast-Modified: ", date_of(object.changed), "\r\n"),
                      object.content);
}

}  // namespace trireme::remote
