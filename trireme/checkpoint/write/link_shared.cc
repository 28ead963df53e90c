#include "trireme/checkpoint/write/link_shared.h"

#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/write/chunk_index.h"

namespace trireme::checkpoint::inline internal {

namespace fs = std::filesystem;

std::string link_shared(std::span<const fs::path> roots, const fs::path& temporary,
                        const WholeCheckpoints& whole) {
  nlohmann::json result = nlohmann::json::array();
  for (const fs::path& root : roots) {
    try {
      const auto newest = latest(root);
      if (!newest) continue;
      const Manifest manifest = read_manifest(*newest);
      nlohmann::json files = nlohmann::json::array();
      for (const size_t file : shared_files(manifest)) {
        const FileRecord& record = manifest.files[file];
        std::error_code error;  // also when another root has linked it
        fs::create_hard_link(*newest / record.name, temporary / shared_name(record), error);
        if (!error) files.push_back(file);
      }
      if (files.empty()) continue;
      result.push_back(
          {{"folder", newest->string()}, {"files", files}, {"is_whole", whole.contains(*newest)}});
    } catch (const Error&) {  // damaged or not to be read: nothing of it is used
    }
  }
  return result.dump();
}

SharedFiles shared_from(const std::string& linked) {
  SharedFiles shared;
  const nlohmann::json parsed = nlohmann::json::parse(linked);
  for (const nlohmann::json& each : parsed) {
    const auto files = each.at("files").get<std::vector<size_t>>();
    const Manifest manifest = read_manifest(each.at("folder").get<std::string>());
    add_chunks(manifest, files, shared.files.size(), shared.chunks);
    for (const size_t file : files) {
      FileRecord record = manifest.files.at(file);
      record.name = shared_name(record);
      shared.files.push_back(std::move(record));
      shared.are_whole.push_back(each.at("is_whole"));
    }
  }
  return shared;
}

}  // namespace trireme::checkpoint::inline internal
