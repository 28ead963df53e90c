// Reads parts of objects from stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/remote/store_client.h"

namespace trireme::remote {

// Which bytes an object has.
struct ObjectVersion {
  std::string tag{};  // its ETag, or else the time of its last change; "": the store says neither
  uint64_t num_bytes = 0;
  bool operator==(const ObjectVersion&) const = default;
};

// Thread safe.
class Store {
 public:
  // Throws: as StoreClient
  explicit Store(StoreSettings settings, StoreOptions options = {})
      : client_(std::move(settings), options) {}

  StoreClient& client() { return client_; }

  // The version of an object; nullopt when there is none of that name.
  // Comm:   one request and 1 byte of the object
  // Throws: ConfigError when the store refuses, does not do range requests, or answers what it
  //         should not; CommError when it has not answered for `first_patience`
  std::optional<ObjectVersion> find(const std::string& url);

  // Fills `out` with the bytes from `offset` on, of this version.
  // Comm:   one request and out.size() bytes
  // Throws: as find(), but for `patience`; ConfigError also when the object is gone or has changed
  void read(const std::string& url, const ObjectVersion& version, uint64_t offset,
            std::span<std::byte> out);

 private:
  StoreClient client_;
};

}  // namespace trireme::remote
