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

bool WholeCheckpoints::contains(const fs::path& folder) const {
  return known_.contains(identity_of(folder));
}

void WholeCheckpoints::add(const fs::path& folder) {
  try {
    known_.insert(identity_of(folder));
  } catch (const Error&) {
  }
}

}  // namespace trireme::checkpoint::inline internal
