#include "trireme/remote/store_files.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/remote/url.h"

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
  std::string version() const override { return version_.tag; }

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
    : store_(std::make_shared<Store>(settings, options)),
      lister_(std::make_shared<StoreWriter>(std::move(settings), options)),
      cache_(cache ? std::make_shared<BlockCache>(std::move(*cache)) : nullptr) {}

std::unique_ptr<ByteSource> StoreFiles::file_of(const std::string& url,
                                                ObjectVersion version) const {
  return std::make_unique<StoreFile>(store_, cache_, url, std::move(version));
}

std::unique_ptr<ByteSource> StoreFiles::find(const std::string& name) const {
  std::optional<ObjectVersion> version = store_->find(name);
  return version ? file_of(name, std::move(*version)) : nullptr;
}

std::unique_ptr<ByteSource> StoreFiles::open(const std::string& name) const {
  std::unique_ptr<ByteSource> file = find(name);
  TRIREME_CHECK(file, "there is no ", name, "; check the name, or copy the file there");
  return file;
}

std::vector<std::unique_ptr<ByteSource>> StoreFiles::list(const std::string& prefix) const {
  TRIREME_CHECK(parse_url(prefix).is_bucket(), "cannot list ", prefix,
                ": a web server does not tell what it has; name each file, or put them in a bucket "
                "(s3:// or gs://)");
  std::vector<std::unique_ptr<ByteSource>> files;
  for (ListedObject& object : lister_->list(prefix)) {
    const std::string url = prefix + object.name;
    TRIREME_CHECK(
        is_printable(url), "cannot use ", shown(url, kMaxWordBytes),
        ": its name has a control character; give it another name, or leave it out of the "
        "folder");
    std::unique_ptr<ByteSource> file;
    if (object.tag.starts_with('"')) {
      file = file_of(url, {.tag = std::move(object.tag), .num_bytes = object.num_bytes});
    } else {
      file = find(url);
    }
    if (file) files.push_back(std::move(file));  // else it was removed since it was listed
  }
  return files;
}

std::shared_ptr<const FileStore> open_stores(std::span<const std::string> names) {
  if (std::ranges::none_of(names, is_url)) return nullptr;
  return std::make_shared<const StoreFiles>(read_store_settings(), StoreOptions{}, std::nullopt);
}

}  // namespace trireme::remote
