// Reads parts of objects from stores, and tries again when a store does not answer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/error.h"
#include "trireme/remote/http_client.h"
#include "trireme/remote/store_settings.h"
#include "trireme/remote/url.h"

namespace trireme::remote {

struct StoreOptions {
  // How long a read tries again while the store does not answer, or says that it cannot now.
  std::chrono::milliseconds patience = std::chrono::seconds(120);
  // The same of find(), which finds out at once that a name is wrong.
  std::chrono::milliseconds first_patience = std::chrono::seconds(10);
  // Before the second try, and doubling up to 5 s. A part of it is random, so that ranks do not come
  // back together.
  std::chrono::milliseconds first_pause = std::chrono::milliseconds(100);
};

// Which bytes an object has: its ETag, or else the time of its last change. "": the store says
// neither.
struct ObjectVersion {
  std::string tag{};
  uint64_t num_bytes = 0;
  bool operator==(const ObjectVersion&) const = default;
};

// Thread safe.
class Store {
 public:
  // Throws: ConfigError in a build without libcurl
  explicit Store(StoreSettings settings, StoreOptions options = {});

  // The version of an object; nullopt when there is none of that name.
  // Comm:   one request and 1 byte of the object
  // Throws: ConfigError when the store refuses, does not do range requests, or answers what it
  //         should not; CommError when it has not answered for
  //         `first_patience`
  std::optional<ObjectVersion> find(const std::string& url);

  // Fills `out` with the bytes from `offset` on, of this version.
  // Comm:   one request and out.size() bytes
  // Throws: as find(), but for `patience`; ConfigError also when the object is gone or has changed
  void read(const std::string& url, const ObjectVersion& version, uint64_t offset,
            std::span<std::byte> out);

 private:
  struct Wanted;
  struct Place;
  Place place_of(const ObjectUrl& url);
  HttpAnswer send(const std::string& url, const Wanted& wanted, std::chrono::milliseconds patience);
  HttpAnswer send_once(const ObjectUrl& object, const Wanted& wanted);
  // Whether the answer says what to do otherwise next time: another clock or region.
  bool learn_from(const HttpAnswer& answer);

  StoreSettings settings_;
  StoreOptions options_;
  HttpClient client_;
  std::mutex mutex_;                      // of the region, which a store may tell
  std::atomic<int64_t> clock_offset_{0};  // seconds that the store's clock is ahead of this one
};

}  // namespace trireme::remote
