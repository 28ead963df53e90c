#include "trireme/checkpoint/transfer/site_checkpoints.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/publish.h"
#include "trireme/checkpoint/transfer/site_files.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A site's description of one checkpoint.
json describe(const fs::path& folder) {
  json found{{"step", step_of(folder.filename().string())}};
  try {
    const Manifest manifest = read_manifest(folder);
    FileNames files;
    for (const FileRecord& file : manifest.files) files.insert(file.name);
    found["manifest"] = checksum(InputFile(folder / kManifestName));
    found["files"] = files;
    found["present"] = present_files(manifest, folder);
    found["age"] = age_of(folder).count();
  } catch (const Error& error) {
    // A site with a damaged manifest spoils the step: nobody knows what its files should be.
    found["problem"] = error.what();
  }
  return found;
}

// The sites' knowledge of one step, together.
struct Known {
  std::string manifest;
  FileNames files, present;
  int64_t age = 0;
  std::string problem;  // "": none so far

  void add(const json& found) {
    if (found.contains("problem")) {
      problem = found.at("problem");
      return;
    }
    // Two runs may have written the same step at different hosts.
    if (!manifest.empty() && found.at("manifest") != manifest) problem = "hosts differ in it";
    manifest = found.at("manifest");
    files = found.at("files").get<FileNames>();
    present.merge(found.at("present").get<FileNames>());
    age = std::max(age, found.at("age").get<int64_t>());
  }
  // Files may be missing at some sites, as long as another one has them.
  std::string why_unusable() const {
    if (!problem.empty()) return problem;
    const auto missing = std::ranges::find_if(
        files, [&](const std::string& name) { return !present.contains(name); });
    return missing == files.end() ? "" : "no host has its file " + *missing;
  }
};

// The files that have chunks of the entries' boxes on this rank.
FileNames files_for(const Manifest& manifest, std::span<const Entry> entries,
                    const comm::Communicator& world) {
  FileNames names;
  for (const Entry& entry : entries) {
    const auto found = manifest.tensors.find(entry.name);
    if (found == manifest.tensors.end()) continue;
    const mesh::Box box = entry.box(world.rank(), world.size());
    for (const Piece& piece : found->second.pieces) {
      if (piece.box.size.size() != box.size.size() || mesh::intersect(piece.box, box).numel() == 0)
        continue;
      if (!piece.file.empty()) names.insert(piece.file);
      for_all_chunks(piece,
                     [&](const Chunk& chunk) { names.insert(manifest.files.at(chunk.file).name); });
    }
  }
  return names;
}

// The text of the manifest that some sites have, on every rank, and which of them have it.
struct SharedManifest {
  std::string text;
  std::vector<bool> at;
};
SharedManifest share_manifest(const fs::path& folder, const Sites& sites, comm::Communicator& world,
                              const OnWait& on_wait) {
  const fs::path path = folder / kManifestName;
  const auto read = [&](const Peers&) {
    // Empty where there is none; the text itself is compared, not a checksum of it.
    return sites.leads() && fs::exists(path) ? read_file(path) : std::string();
  };
  const auto texts = gather_or_throw(world, read, on_wait);
  SharedManifest shared;
  for (int site = 0; site < sites.size(); ++site) {
    const std::string& text = texts[sites.leader(site)];
    shared.at.push_back(!text.empty());
    if (text.empty()) continue;
    if (!shared.text.empty() && shared.text != text)
      throw CheckpointError(folder.string() + ": the hosts' manifests differ");
    shared.text = text;
  }
  if (shared.text.empty()) throw CheckpointError(folder.string() + ": no host has a manifest");
  return shared;
}

}  // namespace

std::chrono::seconds age_of(const fs::path& folder) {
  std::error_code none;
  const auto written = fs::last_write_time(folder / kManifestName, none);
  if (none) return std::chrono::seconds(0);
  const auto age = fs::file_time_type::clock::now() - written;
  return std::max(std::chrono::seconds(0), std::chrono::duration_cast<std::chrono::seconds>(age));
}

FoundCheckpoint find_complete(const fs::path& root, const std::set<int64_t>& left_out,
                              const Sites& sites, comm::Communicator& world,
                              const OnWait& on_wait) {
  const auto look = [&](const Peers&) {
    json found = json::array();
    if (!sites.leads()) return found.dump();
    for (const fs::path& folder : list(root)) found.push_back(describe(folder));
    return found.dump();
  };
  std::map<int64_t, Known> known;
  for (const std::string& text : gather_or_throw(world, look, on_wait)) {
    for (const json& found : json::parse(text)) known[found.at("step").get<int64_t>()].add(found);
  }
  FoundCheckpoint result;
  // From the newest step down.
  for (auto each = known.rbegin(); each != known.rend(); ++each) {
    const auto& [step, what] = *each;
    if (left_out.contains(step)) continue;
    const fs::path folder = root / folder_name(step);
    const std::string problem = what.why_unusable();
    if (problem.empty()) {
      result.newest = {folder, step, std::chrono::seconds(what.age)};
      return result;
    }
    // Told, since the run goes on from an older one.
    result.notes.push_back(concat("not used: ", folder.string(), ": ", problem));
  }
  return result;
}

void bring(const fs::path& folder, std::span<const Entry> entries, const Sites& sites,
           comm::Communicator& world, const OnWait& on_wait) {
  if (sites.size() == 1) return;
  const SharedManifest shared = share_manifest(folder, sites, world, on_wait);
  const Manifest manifest = parse_and_check_manifest(shared.text, folder / kManifestName);
  const auto wanted = gather_by_site(files_for(manifest, entries, world), sites, world, on_wait);
  const auto present = gather_present(manifest, folder, sites, world, on_wait);
  const std::vector<Transfer> plan = plan_transfers(manifest, wanted, present);

  // In a folder beside, which is then committed like a save. Files in a folder with a name would be
  // taken for complete.
  // A site that gets something makes the folder anew, with links to what it has.
  const bool gets =
      !shared.at[sites.mine()] || std::ranges::count(plan, sites.mine(), &Transfer::to) > 0;
  const fs::path root = folder.parent_path();
  const fs::path temporary = temporary_folder(root, manifest.step);
  const auto prepare = [&](const Peers&) {
    if (!gets) return;
    prepare_temporary(root, manifest.step);
    // Links cost nothing, and the folder's old name goes with the exchange.
    for (const std::string& name : present[sites.mine()])
      fs::create_hard_link(folder / name, temporary / name);
  };
  on_leaders(sites, world, prepare, on_wait);
  if (!plan.empty()) {
    // A group of its own: bytes travel while the ranks wait for each other over `world`.
    const auto lane = world.split(0, world.rank(), "files");
    transfer_files(plan, folder, temporary, sites, world, *lane, on_wait);
  }
  const auto publish = [&](const Peers&) {
    if (gets) commit(root, temporary, manifest, /*fsync=*/false);
  };
  on_leaders(sites, world, publish, on_wait);
}

}  // namespace trireme::checkpoint
