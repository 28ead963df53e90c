// Writes, lists and removes objects of buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/remote/store_client.h"

namespace trireme::remote {

// What must hold of an object for it to be written.
struct WriteCondition {
  bool is_absent = false;  // there is none of that name
  std::string tag{};       // it has this ETag; "": any
};

// A small object, all of it.
struct SmallObject {
  std::string text{};
  std::string tag{};        // its ETag
  int64_t age_seconds = 0;  // by the store's own clock
};

struct ListedObject {
  std::string name{};  // behind the prefix that was asked for
  uint64_t num_bytes = 0;
  std::string tag{};  // its ETag; "": the store does not list it
};

// Thread safe.
class StoreWriter {
 public:
  // Throws: as StoreClient
  explicit StoreWriter(StoreSettings settings, StoreOptions options = {})
      : client_(std::move(settings), options) {}

  // As StoreClient::cancel().
  void cancel() { client_.cancel(); }

  // Writes an object, which is there as a whole or not at all. The store compares its bytes with
  // their SHA-256. Those of more than part_bytes are sent in parts of this size.
  // Comm:   content.num_bytes()
  // Memory: part_bytes
  // Throws: ConfigError when the store refuses; CommError when it does not answer for `patience`;
  //         what reading `content` throws
  void put(const std::string& url, const ByteSource& content, uint64_t part_bytes = 64 << 20);

  // Writes a small object if `condition` holds, and returns its ETag; nullopt: it does not hold.
  // Stores that have no conditions are refused.
  // Throws: as put()
  std::optional<std::string> put_if(const std::string& url, std::string_view text,
                                    const WriteCondition& condition);

  // An object of at most max_bytes; nullopt: there is none.
  // Throws: as put(); ConfigError when it has more, or the store tells no ETag and time of it
  std::optional<SmallObject> get(const std::string& url, size_t max_bytes = 64 << 10);

  // The objects whose names begin with the URL, in the order of their names, which end in anything.
  // Throws: as put(); ConfigError when there are more than `most`
  std::vector<ListedObject> list(const std::string& url, size_t most = 1'000'000);

  // Removes an object that may be missing.
  // Throws: as put()
  void remove(const std::string& url);

 private:
  HttpAnswer send(const std::string& url, StoreCall call);
  void put_in_parts(const std::string& url, const ByteSource& content, uint64_t part_bytes);

  StoreClient client_;
};

}  // namespace trireme::remote
