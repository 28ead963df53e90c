// Checkpoints of which this process knows that every byte is right, because it has written them.
// From another one a save takes no chunk before it has read it: a link to damaged bytes would be
// saved as if it were whole. Not thread safe.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace trireme::checkpoint::inline internal {

class WholeCheckpoints {
 public:
  bool contains(const std::filesystem::path& folder) const;

  // This process has just written `folder`, and all that it takes from others was whole. Does
  // nothing when the manifest cannot be read.
  void add(const std::filesystem::path& folder);

 private:
  std::set<std::pair<std::filesystem::path, std::string>> known_;  // and the manifest's checksum
};

}  // namespace trireme::checkpoint::inline internal
