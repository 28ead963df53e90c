// The objects of stores as files, with or without a cache.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/remote/block_cache.h"
#include "trireme/remote/store.h"
#include "trireme/remote/store_writer.h"

namespace trireme::remote {

// Names are URLs. What it opens may outlive it.
class StoreFiles : public FileStore {
 public:
  // Throws: as Store and BlockCache
  StoreFiles(StoreSettings settings, StoreOptions options, std::optional<BlockCacheOptions> cache);

  // Reading it throws as Store::read().
  // Comm:   one request
  // Throws: as Store::find()
  std::unique_ptr<ByteSource> find(const std::string& name) const override;
  // Throws: as find(); ConfigError when there is no such object
  std::unique_ptr<ByteSource> open(const std::string& name) const override;
  // Comm:   one request for 500 objects; where a listing has no ETags, one more for each object
  // Throws: as StoreWriter::list(); ConfigError for a web server, which cannot list, and for a name
  //         that no URL can have
  std::vector<std::unique_ptr<ByteSource>> list(const std::string& prefix) const override;
  // What is in the cache is still read.
  void cancel() const override { store_->client().cancel(); }

 private:
  std::unique_ptr<ByteSource> file_of(const std::string& url, ObjectVersion version) const;

  std::shared_ptr<Store> store_;
  std::shared_ptr<StoreWriter> lister_;
  std::shared_ptr<BlockCache> cache_;  // null: none
};

// The objects that URLs among `names` lead to, with the keys of this process's environment; null
// when there is no URL.
// Throws: as StoreFiles and read_store_settings()
std::shared_ptr<const FileStore> open_stores(std::span<const std::string> names);

}  // namespace trireme::remote
