// Links files of earlier checkpoints into the folder of a new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "trireme/checkpoint/write/shard_writer.h"

namespace trireme::checkpoint {

// Checkpoints whose every byte this process knows to be right, because it has written them. Before
// a save links a chunk of any other checkpoint, it reads the chunk; otherwise damaged bytes would
// count as whole. Not thread safe.
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

// Links the files of the newest checkpoint of each root into `temporary`, as far as they are there.
// Returns, as JSON, those checkpoints' folders, which of their files, under which names, and the
// number of the save in `whole` that has written them; what cannot be linked is written again.
std::string link_shared(std::span<const std::filesystem::path> roots,
                        const std::filesystem::path& temporary, const WholeCheckpoints& whole);

// The files that link_shared() has linked, as every rank finds them.
SharedFiles shared_from(const std::string& linked);

// The number of the save that has written the newest checkpoint of `root`; nothing when there is
// none, or another process has written it.
std::optional<int64_t> save_before(const std::string& linked, const std::filesystem::path& root);
// The names of the linked files.
std::set<std::string> linked_names(const std::string& linked);

}  // namespace trireme::checkpoint
