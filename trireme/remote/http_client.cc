#include "trireme/remote/http_client.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_CURL
#include <curl/curl.h>
#endif

namespace trireme::remote {

#ifndef TRIREME_HAVE_CURL

class HttpClient::Connection {};

bool http_available() { return false; }
HttpClient::HttpClient() {
  throw ConfigError(
      "object stores and trackers need libcurl, which this build lacks: install "
      "libcurl4-openssl-dev, build "
      "again, or keep files on this machine");
}
HttpClient::~HttpClient() = default;
HttpAnswer HttpClient::send(const HttpRequest& /*request*/) { return {}; }
std::optional<int64_t> parse_http_date(const std::string& /*text*/) { return std::nullopt; }

#else

namespace {

constexpr size_t kMostTextBytes = 16 << 10;
constexpr size_t kMostHeaders = 100;
constexpr size_t kMostHeaderBytes = 8 << 10;
constexpr size_t kMostIdle = 64;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

// What the callbacks of one request share.
struct Transfer {
  CURL* curl = nullptr;
  std::span<const std::byte> body;  // not sent yet
  std::span<std::byte> out;
  HttpAnswer answer;
};

size_t take_body(char* data, size_t /*one*/, size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  HttpAnswer& answer = transfer.answer;
  long status = 0;
  ::curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
  if (status < 200 || status >= 300) {
    answer.text.append(data, std::min(size, kMostTextBytes - answer.text.size()));
    return answer.text.size() == kMostTextBytes ? 0 : size;  // enough of it
  }
  if (size > transfer.out.size() - answer.num_bytes) {
    answer.is_too_long = true;
    return 0;
  }
  std::memcpy(transfer.out.data() + answer.num_bytes, data, size);
  answer.num_bytes += size;
  return size;
}

size_t give_body(char* to, size_t /*one*/, size_t room, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t count = std::min(room, transfer.body.size());
  std::memcpy(to, transfer.body.data(), count);
  transfer.body = transfer.body.subspan(count);
  return count;
}

size_t take_header(char* data, size_t /*one*/, size_t size, void* user) {
  auto& headers = static_cast<Transfer*>(user)->answer.headers;
  std::string_view line(data, size);
  if (line.starts_with("HTTP/")) headers.clear();  // of a redirect
  const size_t colon = line.find(':');
  if (size > kMostHeaderBytes || colon == std::string_view::npos ||
      headers.size() >= kMostHeaders) {
    return size;
  }
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), lower);
  line.remove_prefix(colon + 1);
  constexpr std::string_view kSpace = " \t\r\n";
  line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
  headers[name] = line.substr(0, line.find_last_not_of(kSpace) + 1);
  return size;
}

// libcurl calls it about once a second and whenever bytes come or go.
int is_to_end(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<const std::atomic<bool>*>(user) ? 1 : 0;
}

struct FreeList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
struct EndTransfer {
  void operator()(CURL* curl) const { ::curl_easy_cleanup(curl); }
};

}  // namespace

// Open connections, which one request at a time uses. Each request has a transfer of its own:
// libcurl 7.88.1 reads freed memory of a transfer's last answer when the next one begins with a
// continued header (found by the fuzzer of answers).
class HttpClient::Connection {
 public:
  Connection() : share_(::curl_share_init()) {
    TRIREME_ASSERT(share_ != nullptr, "curl_share_init failed");
    for (const curl_lock_data data :
         {CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_DNS, CURL_LOCK_DATA_SSL_SESSION}) {
      ::curl_share_setopt(share_, CURLSHOPT_SHARE, data);
    }
  }
  ~Connection() { ::curl_share_cleanup(share_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  HttpAnswer send(const HttpRequest& request, const std::atomic<bool>& is_cancelled) {
    Transfer transfer{.body = request.body, .out = request.out, .answer = {}};
    std::unique_ptr<curl_slist, FreeList> headers;
    const std::unique_ptr<CURL, EndTransfer> owned(::curl_easy_init());
    TRIREME_ASSERT(owned != nullptr, "curl_easy_init failed");
    CURL* const curl = transfer.curl = owned.get();
    std::vector<std::string> lines = {"Expect:"};  // or servers without 100-continue cost a second
    for (const auto& [name, value] : request.headers) lines.push_back(name + ": " + value);
    for (const std::string& line : lines) {
      curl_slist* longer = ::curl_slist_append(headers.get(), line.c_str());
      TRIREME_ASSERT(longer != nullptr, "no memory for a header");
      static_cast<void>(headers.release());
      headers.reset(longer);
    }
    set_options(request, transfer, headers.get());
    ::curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    ::curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &is_to_end);
    ::curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &is_cancelled);
    const CURLcode code = ::curl_easy_perform(curl);
    HttpAnswer& answer = transfer.answer;
    long status = 0;
    ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    const bool was_cut = code == CURLE_WRITE_ERROR;  // here, on purpose
    if (code == CURLE_OK || was_cut) {
      answer.status = static_cast<int>(status);
    } else {
      answer.failure = ::curl_easy_strerror(code);
    }
    return std::move(answer);
  }

 private:
  void set_options(const HttpRequest& request, Transfer& transfer, curl_slist* headers) {
    CURL* const curl = transfer.curl;
    const auto set = [curl](CURLoption option, auto value) {
      ::curl_easy_setopt(curl, option, value);
    };
    set(CURLOPT_SHARE, share_);
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "https");
    set(CURLOPT_FOLLOWLOCATION, request.follow_redirects ? 1L : 0L);
    set(CURLOPT_MAXREDIRS, 5L);
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_PATH_AS_IS, 1L);  // the path is signed as it is
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "trireme");
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_CONNECTTIMEOUT_MS, 10'000L);
    set(CURLOPT_LOW_SPEED_LIMIT, 1024L);
    set(CURLOPT_LOW_SPEED_TIME, 15L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.patience.count()));
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    if (request.method == "PUT" || request.method == "POST") {
      set(CURLOPT_UPLOAD, 1L);
      set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      set(CURLOPT_READFUNCTION, &give_body);
      set(CURLOPT_READDATA, static_cast<void*>(&transfer));
    }
    if (request.method != "GET") set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_WRITEFUNCTION, &take_body);
    set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
    set(CURLOPT_HEADERFUNCTION, &take_header);
    set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  }

  CURLSH* share_;
};

bool http_available() { return true; }

std::optional<int64_t> parse_http_date(const std::string& text) {
  const time_t seconds = ::curl_getdate(text.c_str(), nullptr);
  return seconds < 0 ? std::nullopt : std::optional<int64_t>(seconds);
}

HttpClient::HttpClient() {
  // Once in a process; not undone, as others may use the library too.
  static const CURLcode code = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  TRIREME_ASSERT(code == CURLE_OK, "curl_global_init failed: ", static_cast<int>(code));
}

HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::send(const HttpRequest& request) {
  std::unique_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!connection) connection = std::make_unique<Connection>();
  HttpAnswer answer = connection->send(request, is_cancelled_);
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(connection));
  return answer;
}

#endif

}  // namespace trireme::remote
