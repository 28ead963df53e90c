// The objects of stores as files, with or without a cache.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/base/file/byte_source.h"
#include "trireme/remote/block_cache.h"
#include "trireme/remote/store.h"

namespace trireme::remote {

// Names are URLs. What it opens may outlive it.
class StoreFiles : public FilePlace {
 public:
  // Throws: as Store and BlockCache
  StoreFiles(StoreSettings settings, StoreOptions options, std::optional<BlockCacheOptions> cache);

  // Throws: as Store::find()
  bool has(const std::string& name) const override;
  // Reading it throws as Store::read().
  // Throws: as Store::find(); ConfigError when there is no such object
  std::unique_ptr<ByteSource> open(const std::string& name) const override;
  // What is in the cache is still read.
  void cancel() const override { store_->client().cancel(); }

 private:
  std::shared_ptr<Store> store_;
  std::shared_ptr<BlockCache> cache_;  // null: none
};

}  // namespace trireme::remote
