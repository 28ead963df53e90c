// Checkpoints of which this process knows that every byte is right, because it has written or read
// them. Only from such a one may another take chunks: a link to damaged bytes would be saved as if
// it were whole. Not thread safe.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace trireme::checkpoint::inline internal {

class WholeCheckpoints {
 public:
  // The newest checkpoint of `root` that is whole. Reads all of each that it does not know. One
  // that has files on other hosts is known once this process has written it.
  // Throws: as list() and verify()
  std::optional<std::filesystem::path> newest(const std::filesystem::path& root);

  // This process has just written `folder`, and all that it takes from others was whole. Does
  // nothing when the manifest cannot be read.
  void add(const std::filesystem::path& folder);

 private:
  using Identity = std::pair<std::filesystem::path, std::string>;  // and the manifest's checksum
  std::map<Identity, bool> is_whole_;
};

}  // namespace trireme::checkpoint::inline internal
