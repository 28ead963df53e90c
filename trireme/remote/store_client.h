// Requests to stores: signed, and tried again when a store does not answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/remote/http_client.h"
#include "trireme/remote/signature.h"
#include "trireme/remote/store_settings.h"
#include "trireme/remote/url.h"

namespace trireme::remote {

struct StoreOptions {
  // How long a request is tried again while the store does not answer, or says that it cannot now.
  std::chrono::milliseconds patience = std::chrono::seconds(120);
  // The same when an object is looked for, which finds out at once that a name is wrong.
  std::chrono::milliseconds first_patience = std::chrono::seconds(10);
  // Before the second try, and doubling up to 5 s. A part of it is random, so that ranks do not
  // come back together.
  std::chrono::milliseconds first_pause = std::chrono::milliseconds(100);
};

struct StoreCall {
  std::string method = "GET";
  std::vector<Header> query{};  // name and value, not encoded
  std::vector<Header> headers{};
  std::span<const std::byte> body{};  // sent with PUT and POST
  std::span<std::byte> out{};         // takes the body of an answer with status 2xx
  std::chrono::milliseconds patience{};
  bool of_bucket = false;  // asks the bucket of the URL, not the object
};

// The part of an object that an answer has. RFC 9110, section 14.4
struct ContentRange {
  uint64_t begin = 0, last = 0, total = 0;
};
// "bytes 0-9/100"; nullopt for anything else, and for a range that is not within its total.
std::optional<ContentRange> parse_content_range(const std::string& text);

// The value of a header; "": there is none.
std::string header_of(const HttpAnswer& answer, const std::string& name);

// For a message: the status and the store's own word for an error, such as NoSuchKey, the only part
// of its text that is shown; or libcurl's words.
std::string said(const HttpAnswer& answer);

// Thread safe.
class StoreClient {
 public:
  // Throws: ConfigError for a region of other characters, and in a build without libcurl
  explicit StoreClient(StoreSettings settings, StoreOptions options = {});

  const StoreOptions& options() const { return options_; }

  // The answer to a call, whatever its status but 408, 429 and 5xx. An answer to a request for a
  // part that has another length than it says is taken after five times.
  // Throws: CommError when there is none for call.patience; ConfigError for a URL that is none
  HttpAnswer send(const std::string& url, const StoreCall& call);

  // Ends the calls under way and all later ones with CommError, within about a second. Any thread
  // may call it.
  void cancel() { client_.cancel(); }

 private:
  struct Place;
  // What stores have told of themselves.
  struct Learned {
    std::string region{};      // of S3, "": as in the settings
    int64_t clock_offset = 0;  // seconds that the store's clock is ahead of this one
    bool operator==(const Learned&) const = default;
  };
  Place place_of(const ObjectUrl& url, const Learned& learned) const;
  HttpAnswer send_once(const ObjectUrl& object, const StoreCall& call, const Learned& learned);
  Learned learned() const;
  // Whether the answer to a request made with `used` says what to do otherwise, or another one has.
  bool learn_from(const HttpAnswer& answer, const Learned& used);

  StoreSettings settings_;
  StoreOptions options_;
  HttpClient client_;
  mutable std::mutex mutex_;  // of learned_
  Learned learned_;
};

// Throws ConfigError for an answer that is no success: what was asked, the store's answer, and what
// to do. doing: "cannot read"
[[noreturn]] void refuse(const char* doing, const std::string& url, const HttpAnswer& answer);

}  // namespace trireme::remote
