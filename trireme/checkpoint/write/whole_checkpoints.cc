#include "trireme/checkpoint/write/whole_checkpoints.h"

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint::inline internal {
namespace {

namespace fs = std::filesystem;

// A save may have replaced the checkpoint of a name by another.
std::pair<fs::path, std::string> identity_of(const fs::path& folder) {
  return {folder, checksum(InputFile(folder / kManifestName))};
}

}  // namespace

std::optional<int64_t> WholeCheckpoints::find(const fs::path& folder) const {
  const auto found = known_.find(identity_of(folder));
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void WholeCheckpoints::add(const fs::path& folder, int64_t save) {
  try {
    known_[identity_of(folder)] = save;
  } catch (const Error&) {
  }
}

}  // namespace trireme::checkpoint::inline internal
