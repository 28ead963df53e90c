#include "trireme/dataset/image/image_tree.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/image/encoded_images.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostListBytes = uint64_t{16} << 20;

class LocalTree final : public ImageTree {
 public:
  explicit LocalTree(std::string root) : ImageTree(std::move(root)) {}

  std::vector<TreeItem> items(const std::string& folder) const override {
    std::vector<TreeItem> items;
    for (const fs::directory_entry& item : items_of(path_of(folder))) {
      std::error_code unknown;
      items.push_back({item.path().filename(), item.is_directory(unknown)});
    }
    return items;
  }
  bool has_folder(const std::string& name) const override {
    std::error_code unknown;  // opening it says more
    return fs::is_directory(path_of(name), unknown);
  }
  bool has_file(const std::string& name) const override {
    std::error_code unknown;
    return fs::exists(path_of(name), unknown);
  }
  const FilePlace& place() const override { return local_files(); }
};

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

// A bucket tells what it has; a web server only what it is asked for.
class StoreTree final : public ImageTree {
 public:
  StoreTree(const std::string& root, std::shared_ptr<const FileStore> store)
      : ImageTree(without_slash(root)),
        store_(std::move(store)),
        lists_(!root.starts_with("http://") && !root.starts_with("https://")) {}

  std::vector<TreeItem> items(const std::string& folder) const override {
    if (const auto list = list_of(folder)) return items_in(folder, *list);
    TRIREME_CHECK(lists_, path_of(folder), " is on a web server, which cannot list it, and has no ",
                  kShardList, "; put one there that names its .tar archives, one a line");
    std::vector<TreeItem> items;
    const std::string prefix = below(folder);
    for (auto at = objects().lower_bound(prefix); at != objects().end(); ++at) {
      if (!at->first.starts_with(prefix)) break;
      const std::string rest = at->first.substr(prefix.size());
      const size_t slash = rest.find('/');
      const std::string name = rest.substr(0, slash);
      if (name.empty()) continue;
      const bool is_folder = slash != std::string::npos;
      if (!is_folder) {
        items.push_back({name, false, at->second});
      } else if (items.empty() || items.back().name != name || !items.back().is_folder) {
        items.push_back({name, true});
      }
    }
    std::ranges::sort(items, {}, &TreeItem::name);  // "a.b/" comes before "a/" among the objects
    return items;
  }
  bool has_folder(const std::string& name) const override {
    if (!lists_) return has_file(below(name) + kShardList);
    const auto found = objects().lower_bound(below(name));
    return found != objects().end() && found->first.starts_with(below(name));
  }
  bool has_file(const std::string& name) const override {
    return store_->find(path_of(name)) != nullptr;
  }
  const FilePlace& place() const override { return *store_; }

 private:
  using Objects = std::map<std::string, std::shared_ptr<const ByteSource>, std::less<>>;

  static std::string below(const std::string& folder) { return folder.empty() ? "" : folder + "/"; }

  // The folder's shards.txt; null: there is none.
  std::shared_ptr<const ByteSource> list_of(const std::string& folder) const {
    const std::string name = below(folder) + kShardList;
    if (!lists_) return store_->find(path_of(name));
    const auto found = objects().find(name);
    return found == objects().end() ? nullptr : found->second;
  }

  // By name below the root.
  const Objects& objects() const {
    const std::lock_guard lock(mutex_);
    if (objects_) return *objects_;
    const std::string prefix = root() + "/";
    Objects found;
    for (std::unique_ptr<ByteSource>& object : store_->list(prefix)) {
      std::string name = object->name().substr(prefix.size());
      found.emplace(std::move(name), std::move(object));
    }
    objects_ = std::move(found);
    return *objects_;
  }

  std::vector<TreeItem> items_in(const std::string& folder, const ByteSource& list) const {
    TextReader reader(as_config_error([&] { return read_all(list, kMostListBytes); }));
    std::map<std::string, TreeItem> items;
    int64_t number = 0;
    for (std::string line; std::getline(reader, line);) {
      ++number;
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty()) continue;
      const auto fail = [&](std::string_view what) {
        throw ConfigError(concat(list.name(), ":", number, " has \"", shown(line), "\", ", what));
      };
      const bool is_name = is_printable(line) && line.ends_with(".tar") && line[0] != '.' &&
                           line.find_first_of(lists_ ? "/" : "/?#@%") == std::string::npos;
      if (!is_name) fail("which is no name of an archive; expected names such as train-0000.tar");
      std::shared_ptr<const ByteSource> object = store_->find(path_of(below(folder) + line));
      if (!object) fail("which does not exist beside it; mend the list, or copy the archive there");
      if (!items.emplace(line, TreeItem{line, false, object}).second) fail("a second time");
    }
    std::vector<TreeItem> found;
    for (auto& [name, item] : items) found.push_back(std::move(item));
    return found;
  }

  std::shared_ptr<const FileStore> store_;
  bool lists_;
  mutable std::mutex mutex_;
  mutable std::optional<Objects> objects_;  // not listed yet: empty
};

}  // namespace

std::string ImageTree::path_of(const std::string& name) const {
  return name.empty() ? root_ : (fs::path(root_) / name).string();
}

std::shared_ptr<const ImageTree> local_tree(const std::string& root) {
  return std::make_shared<const LocalTree>(root);
}

std::shared_ptr<const ImageTree> store_tree(const std::string& root,
                                            std::shared_ptr<const FileStore> store) {
  TRIREME_CHECK(!root.ends_with(".tar"), root,
                " is an archive; expected the folder that has train/ with archives in it");
  return std::make_shared<const StoreTree>(root, std::move(store));
}

}  // namespace trireme::dataset
