// The folders and files below a folder of images, on this machine or in a store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

// The names of archives, one a line, in a folder of a web server, which cannot list what it has. A
// bucket may have it too.
inline constexpr const char* kShardList = "shards.txt";

struct TreeItem {
  std::string name;  // in its folder
  bool is_folder = false;
  std::shared_ptr<const ByteSource> object{};  // of a store, a file; null on this machine
};

// Thread safe.
class ImageTree {
 public:
  virtual ~ImageTree() = default;

  // Names are below the root, "train/a.png"; "": the root.
  std::string path_of(const std::string& name) const;
  // What is directly in a folder, ordered by the bytes of the names.
  // Comm:   in a bucket, on first use, one request for 500 objects below the root; on a web server
  //         one for shards.txt; one for each name in that
  // Throws: ConfigError when it cannot be read, a line of shards.txt is no name of an archive, or
  //         its archive is missing
  virtual std::vector<TreeItem> items(const std::string& folder) const = 0;
  // Throws: ConfigError when the store does not tell
  virtual bool has_folder(const std::string& name) const = 0;
  virtual bool has_file(const std::string& name) const = 0;
  // The place of these files, by their paths.
  virtual const FilePlace& place() const = 0;
  // As Task::cancel_reads().
  void cancel() const { place().cancel(); }

 protected:
  explicit ImageTree(std::string root) : root_(std::move(root)) {}
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

// root: a folder of this machine
std::shared_ptr<const ImageTree> local_tree(const std::string& root);
// root: a URL, with or without a slash behind it
// Throws: ConfigError when it ends in ".tar"
std::shared_ptr<const ImageTree> store_tree(const std::string& root,
                                            std::shared_ptr<const FileStore> store);

}  // namespace trireme::dataset
