#include "trireme/remote/store_files.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme::remote {
namespace {

class StoreFile : public ByteSource {
 public:
  StoreFile(std::shared_ptr<Store> store, std::shared_ptr<BlockCache> cache, std::string url,
            ObjectVersion version)
      : store_(std::move(store)),
        cache_(std::move(cache)),
        url_(std::move(url)),
        version_(std::move(version)),
        key_(concat(url_, "\n", version_.tag, "\n", version_.num_bytes)) {}

  std::string name() const override { return url_; }
  uint64_t num_bytes() const override { return version_.num_bytes; }

  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > version_.num_bytes || out.size() > version_.num_bytes - offset) {
      throw Error(concat("cannot read ", url_, ": it ends before byte ", offset + out.size(),
                         "; it had ", version_.num_bytes, " bytes when it was opened"));
    }
    const auto fetch = [this](uint64_t from, std::span<std::byte> to) {
      store_->read(url_, version_, from, to);
    };
    // Without a tag nothing tells whether a kept block is still the object's.
    if (!cache_ || version_.tag.empty()) return fetch(offset, out);
    cache_->read(key_, version_.num_bytes, offset, out, fetch);
  }

 private:
  std::shared_ptr<Store> store_;
  std::shared_ptr<BlockCache> cache_;
  std::string url_;
  ObjectVersion version_;
  std::string key_;
};

}  // namespace

StoreFiles::StoreFiles(StoreSettings settings, StoreOptions options,
                       std::optional<BlockCacheOptions> cache)
    : store_(std::make_shared<Store>(std::move(settings), options)),
      cache_(cache ? std::make_shared<BlockCache>(std::move(*cache)) : nullptr) {}

bool StoreFiles::has(const std::string& name) const { return store_->find(name).has_value(); }

std::unique_ptr<ByteSource> StoreFiles::open(const std::string& name) const {
  std::optional<ObjectVersion> version = store_->find(name);
  TRIREME_CHECK(version, "there is no ", name,
                "; copy the files of `trireme data prepare --output PREFIX` there, and give what "
                "their names begin with");
  return std::make_unique<StoreFile>(store_, cache_, name, std::move(*version));
}

}  // namespace trireme::remote
