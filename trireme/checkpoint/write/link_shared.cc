#include "trireme/checkpoint/write/link_shared.h"

#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/write/chunk_index.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;

std::string link_shared(std::span<const fs::path> roots, const fs::path& temporary,
                        const WholeCheckpoints& whole) {
  nlohmann::json result = nlohmann::json::array();
  for (const fs::path& root : roots) {
    try {
      const auto newest = latest(root);
      if (!newest) continue;
      const Manifest manifest = read_manifest(*newest);
      nlohmann::json files = nlohmann::json::array(), names = nlohmann::json::array();
      for (const size_t file : shared_files(manifest)) {
        const FileRecord& record = manifest.files[file];
        // No hard links on this file system, or the file has gone: it is written again.
        std::error_code error;  // also when another root has linked it
        fs::create_hard_link(*newest / record.name, temporary / shared_name(record), error);
        if (error) continue;
        files.push_back(file);
        names.push_back(shared_name(record));
      }
      // A checkpoint of which nothing can be linked is none to stand on.
      if (files.empty()) continue;
      const std::optional<int64_t> save = whole.find(*newest);
      result.push_back({{"root", root.string()},
                        {"folder", newest->string()},
                        {"files", files},
                        {"names", names},
                        {"save", save ? nlohmann::json(*save) : nlohmann::json()}});
    } catch (const Error&) {  // damaged or not to be read: nothing of it is used
      // A save must not fail for what only makes it faster.
    }
  }
  return result.dump();
}

SharedFiles shared_from(const std::string& linked) {
  SharedFiles shared;
  const nlohmann::json parsed = nlohmann::json::parse(linked);
  for (const nlohmann::json& each : parsed) {
    const auto files = each.at("files").get<std::vector<size_t>>();
    // Every rank reads the manifest again instead of getting it: the folder is the same for all of
    // the site.
    const Manifest manifest = read_manifest(each.at("folder").get<std::string>());
    add_chunks(manifest, files, shared.files.size(), shared.chunks);
    for (const size_t file : files) {
      FileRecord record = manifest.files.at(file);
      record.name = shared_name(record);
      shared.files.push_back(std::move(record));
      shared.are_whole.push_back(!each.at("save").is_null());
    }
  }
  return shared;
}

std::optional<int64_t> save_before(const std::string& linked, const fs::path& root) {
  const nlohmann::json parsed = nlohmann::json::parse(linked);
  for (const nlohmann::json& each : parsed) {
    if (each.at("root") == root.string() && !each.at("save").is_null())
      return each.at("save").get<int64_t>();
  }
  return std::nullopt;
}

std::set<std::string> linked_names(const std::string& linked) {
  std::set<std::string> names;
  const nlohmann::json parsed = nlohmann::json::parse(linked);
  for (const nlohmann::json& each : parsed)
    names.merge(each.at("names").get<std::set<std::string>>());
  return names;
}

namespace {

namespace fs = std::filesystem;

// A save may have replaced the checkpoint of a name by another.
// So the manifest's checksum is a part of the key.
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
    // It is then read before the next save takes anything from it.
  }
}

}  // namespace trireme::checkpoint
