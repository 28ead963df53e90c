#include "trireme/checkpoint/write/whole_checkpoints.h"

#include <ranges>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint::inline internal {
namespace {

namespace fs = std::filesystem;

// A save may have replaced the checkpoint of a name by another.
std::pair<fs::path, std::string> identity_of(const fs::path& folder) {
  return {folder, checksum(InputFile(folder / kManifestName))};
}

}  // namespace

std::optional<fs::path> WholeCheckpoints::newest(const fs::path& root) {
  for (const fs::path& folder : std::views::reverse(list(root))) {
    const auto identity = identity_of(folder);
    auto known = is_whole_.find(identity);
    if (known == is_whole_.end())
      known = is_whole_.emplace(identity, verify(folder).problems.empty()).first;
    if (known->second) return folder;
  }
  return std::nullopt;
}

void WholeCheckpoints::add(const fs::path& folder) {
  try {
    is_whole_[identity_of(folder)] = true;
  } catch (const Error&) {
  }
}

}  // namespace trireme::checkpoint::inline internal
