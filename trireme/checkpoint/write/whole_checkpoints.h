// Checkpoints of which this process knows that every byte is right, because it has written them.
// From another one a save takes no chunk before it has read it: a link to damaged bytes would be
// saved as if it were whole. Not thread safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace trireme::checkpoint::inline internal {

class WholeCheckpoints {
 public:
  // The number of the save that has written it; nothing when it is not one of them.
  std::optional<int64_t> find(const std::filesystem::path& folder) const;

  // This process has just written `folder` in its save number `save`, and all that it takes from
  // others was whole. Does nothing when the manifest cannot be read.
  void add(const std::filesystem::path& folder, int64_t save);

 private:
  // By folder and the manifest's checksum.
  std::map<std::pair<std::filesystem::path, std::string>, int64_t> known_;
};

}  // namespace trireme::checkpoint::inline internal
