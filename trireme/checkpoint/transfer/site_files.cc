#include "trireme/checkpoint/transfer/site_files.h"

#include <algorithm>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {

namespace fs = std::filesystem;

FileNames present_files(const Manifest& manifest, const fs::path& folder) {
  FileNames names;
  for (const FileRecord& file : manifest.files) {
    std::error_code missing;
    if (fs::file_size(folder / file.name, missing) == file.num_bytes && !missing)
      names.insert(file.name);
  }
  return names;
}

std::string to_text(const FileNames& names) { return nlohmann::json(names).dump(); }

FileNames parse_names(const std::string& text) {
  return nlohmann::json::parse(text).get<FileNames>();
}

std::vector<FileNames> gather_by_site(const FileNames& mine, const Sites& sites,
                                      comm::Communicator& group, const OnWait& on_wait) {
  const auto texts = gather_or_throw(
      group, [&](const Peers&) { return to_text(mine); }, on_wait);
  std::vector<FileNames> result(sites.size());
  for (int rank = 0; rank < group.size(); ++rank)
    result[sites.of(rank)].merge(parse_names(texts[rank]));
  return result;
}

std::vector<FileNames> gather_present(const Manifest& manifest, const fs::path& folder,
                                      const Sites& sites, comm::Communicator& group,
                                      const OnWait& on_wait) {
  return gather_by_site(sites.leads() ? present_files(manifest, folder) : FileNames(), sites, group,
                        on_wait);
}

std::vector<Transfer> plan_transfers(const Manifest& manifest, const std::vector<FileNames>& wanted,
                                     const std::vector<FileNames>& present) {
  std::vector<Transfer> plan;
  for (size_t to = 0; to < wanted.size(); ++to) {
    for (const FileRecord& file : manifest.files) {
      if (!wanted[to].contains(file.name) || present[to].contains(file.name)) continue;
      const auto from = std::ranges::find_if(
          present, [&](const FileNames& names) { return names.contains(file.name); });
      if (from == present.end()) {
        throw CheckpointError(concat("no host has the file ", file.name,
                                     " of the checkpoint of step ", manifest.step,
                                     "; use another checkpoint"));
      }
      plan.push_back({.file = file.name,
                      .num_bytes = file.num_bytes,
                      .from = static_cast<int>(from - present.begin()),
                      .to = static_cast<int>(to)});
    }
  }
  return plan;
}

}  // namespace trireme::checkpoint::inline internal
