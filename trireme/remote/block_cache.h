// Blocks of objects on a local disk, shared by the processes of a host. Its size is bounded: those
// that were not used for longest are removed. It only saves time: a damaged block is
// read from the store again, and a full disk makes it useless, not wrong.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace trireme::remote {

struct BlockCacheOptions {
  std::filesystem::path folder{};
  uint64_t max_bytes = uint64_t{10} << 30;
  uint64_t block_bytes = 256 << 10;
};

// Thread safe.
class BlockCache {
 public:
  // Makes the folder, for this user only, and removes what is too much.
  // Throws: ConfigError when it cannot be written to, or its disk has less room than max_bytes
  explicit BlockCache(BlockCacheOptions options);

  // Reads bytes of an object from its store: fills the span with those from the offset on.
  using Fetch = std::function<void(uint64_t offset, std::span<std::byte> out)>;

  // Fills `out` with the bytes from `offset` on of the object `key` of num_bytes, by `fetch` where
  // the cache lacks them. key: names these bytes for ever, such as URL and ETag
  // Other threads and processes that want the same block at that time wait for the one that fetches
  // it, some seconds at most.
  // Throws: what `fetch` throws
  void read(const std::string& key, uint64_t num_bytes, uint64_t offset, std::span<std::byte> out,
            const Fetch& fetch);

 private:
  std::filesystem::path path_of(const std::string& key, uint64_t block) const;
  bool load(const std::filesystem::path& path, std::span<std::byte> block) const;
  void save(const std::filesystem::path& path, std::span<const std::byte> block);
  void sweep();

  BlockCacheOptions options_;
  std::atomic<uint64_t> written_bytes_{0};    // by this process since its last sweep
  std::atomic<int64_t> no_writes_before_{0};  // monotonic_ns(); after a failure, for a minute
  std::atomic<uint64_t> num_temporary_{0};
};

}  // namespace trireme::remote
